package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

const (
	exportFile = "export.json"
	// founderDir holds the founder's own table after the move.
	founderDir = "founder"
	// moveTimeout bounds one attempt to bring the table into the cluster. Logs and buckets get more
	// time, by their size.
	moveTimeout = 30 * time.Second
	// slowestMessages and slowestBytes are the least that is copied in a second.
	slowestMessages = 4000
	slowestBytes    = 4 << 20
)

// export is the whole table during the move from the founder's own server into the cluster.
type export struct {
	// Last is the last assigned revision: the cluster's revisions begin after it.
	Last    uint64        `json:"last"`
	Entries []exportEntry `json:"entries"`
	// Streams are the logs and the buckets. Their messages are in files.
	Streams []streamExport `json:"streams,omitempty"`
}

type exportEntry struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
	// TTL is the value of the server's time-to-live header.
	TTL string `json:"ttl,omitempty"`
}

// moveTable moves the table, the logs and the buckets into the voters' cluster. They are
// unavailable meanwhile: clients retry. After a crash at any moment the next start continues:
// before the role has changed the founder's own server holds the table, afterwards the
// exported file does.
func (s *State) moveTable(ctx context.Context, voters []member) error {
	e := s.server
	if !e.beginMoving() {
		return errMoving
	}
	e.stop()
	text, err := e.exportTable(ctx)
	if err == nil {
		err = writeFile(filepath.Join(e.opts.Dir, exportFile), text)
	}
	if err != nil {
		// Restore the founder's server.
		return errors.Join(err, e.start(), s.server.admitAll(s.nc))
	}
	err = e.role.change(func(d *roleData) { d.Mode, d.Ready, d.Import, d.Routes = voter, false, true, routes(voters) })
	if err != nil {
		return errors.Join(err, e.start(), s.server.admitAll(s.nc))
	}
	return s.finishMove(ctx)
}

// finishMove brings the exported table into the cluster, and admits clients.
func (s *State) finishMove(ctx context.Context) error {
	if err := s.server.importTable(ctx); err != nil {
		return fmt.Errorf("move the pool's state: %w", err)
	}
	return s.server.admitAll(s.nc)
}

// admitAll ends the move for the clients of the server, and connects the node's own one again.
func (e *embedded) admitAll(own *nats.Conn) error {
	e.setMoving(false)
	return own.ForceReconnect()
}

// exportTable reads the table with a server that accepts no other clients.
func (e *embedded) exportTable(ctx context.Context) ([]byte, error) {
	opts, err := e.serverOptions(e.role.get())
	if err != nil {
		return nil, err
	}
	srv, err := runServer(opts, e.log, func() {})
	if err != nil {
		return nil, err
	}
	defer func() {
		srv.Shutdown()
		srv.WaitForShutdown()
	}()
	mv, err := newMover(srv, e)
	if err != nil {
		return nil, err
	}
	defer mv.nc.Close()
	return mv.export(ctx)
}

func (mv mover) export(ctx context.Context) ([]byte, error) {
	stream, err := mv.js.Stream(ctx, streamName)
	if err != nil {
		return nil, err
	}
	out := export{Last: stream.CachedInfo().State.LastSeq}
	if out.Streams, err = mv.exportStreams(ctx); err != nil {
		return nil, err
	}
	entries, _, err := mv.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	for _, en := range entries {
		if !en.Deleted {
			out.Entries = append(out.Entries, exportEntry{Key: en.Key, Value: en.Value, TTL: en.ttl})
		}
	}
	return json.Marshal(out)
}

// importTable starts the clustered server and fills the table that it shares with the other voters
// from the exported file.
func (e *embedded) importTable(ctx context.Context) error {
	if err := e.archiveFounderStore(); err != nil {
		return err
	}
	if e.current() == nil {
		if err := e.start(); err != nil {
			return err
		}
	}
	table, err := readExport(e.opts.Dir)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, table.timeout())
	defer cancel()
	mv, err := newMover(e.current(), e)
	if err != nil {
		return err
	}
	defer mv.nc.Close()
	if err := mv.importAll(ctx, table); err != nil {
		return err
	}
	if err := e.role.change(func(d *roleData) { d.Ready, d.Import = true, false }); err != nil {
		return err
	}
	// The founder's own streams are still there, set aside.
	return os.RemoveAll(filepath.Join(e.opts.Dir, exportDir))
}

func readExport(dir string) (table export, err error) {
	text, err := os.ReadFile(filepath.Join(dir, exportFile))
	if err == nil {
		err = json.Unmarshal(text, &table)
	}
	if err != nil {
		return export{}, fmt.Errorf("read the exported table: %w", err)
	}
	return table, nil
}

// timeout bounds one attempt to import the table and the streams.
func (t export) timeout() time.Duration {
	d := moveTimeout
	for _, one := range t.Streams {
		d += 2 * one.maxDuration() // once to the leader, once to the other voters
	}
	return d
}

// importAll restores the streams in the cluster, and the table last: its last key admits the
// other voters.
func (mv mover) importAll(ctx context.Context, table export) error {
	voters, err := votersOf(table.Entries)
	if err != nil {
		return err
	}
	// A leader whose first request for votes is lost, as on busy machines, is elected 4 to 9 s later.
	// The table is created beside the streams, so that such waits overlap.
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return mv.createImported(groupCtx, table.Last) })
	group.Go(func() error { return mv.importStreams(groupCtx, table.Streams) })
	if err := group.Wait(); err != nil {
		return err
	}
	if err := mv.waitCopies(ctx, voters, table.Streams); err != nil {
		return err
	}
	return mv.fillTable(ctx, table)
}

// archiveFounderStore moves the founder's own table aside, once.
func (e *embedded) archiveFounderStore() error {
	from := filepath.Join(e.opts.Dir, natsserver.JetStreamStoreDir)
	to := filepath.Join(e.opts.Dir, founderDir)
	if _, err := os.Stat(to); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := os.Rename(from, to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("set the founder's table aside: %w", err)
	}
	return nil
}

// createImported creates the table in the cluster, without entries. The revisions of its entries will
// be greater than last.
func (mv mover) createImported(ctx context.Context, last uint64) error {
	err := mv.retry(ctx, func(ctx context.Context) error {
		cfg := tableConfig(Copies)
		cfg.FirstSeq = last + 1
		_, err := mv.js.CreateStream(ctx, cfg)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		return asRetryable(err)
	})
	if err != nil {
		return fmt.Errorf("make the table in the cluster: %w", err)
	}
	return nil
}

// fillTable writes the entries of the table. It is idempotent: no other node writes before the last
// key reports that the table is complete.
func (mv mover) fillTable(ctx context.Context, table export) error {
	for _, en := range table.Entries {
		if _, err := mv.write(ctx, en.Key, en.Value, writeOptions{ttl: en.TTL}); err != nil {
			return err
		}
	}
	_, err := mv.Put(ctx, readyKey, []byte("true"), 0)
	return err
}

// asRetryable makes the error of a cluster that is still missing servers retryable.
func asRetryable(err error) error {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok {
		return fmt.Errorf("%w: %w", nats.ErrNoResponders, api)
	}
	return err
}

// mover copies the table, the logs and the buckets from one server to another, by way of
// files in dir. Its connection bypasses the gate for clients.
type mover struct {
	table
	dir string
}

func newMover(srv *natsserver.Server, e *embedded) (mover, error) {
	mv := mover{newTable(e.log, e.opts.Name), e.opts.Dir}
	err := mv.connect(nats.InProcessServer(srv), e.clients.own())
	return mv, err
}
