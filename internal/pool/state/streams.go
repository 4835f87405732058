package state

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

const (
	// exportDir holds a snapshot file of each stream beside the table.
	exportDir = "export"
	chunkSize = 256 << 10
	// chunkTimeout is how long one part of a snapshot may take. The first part of a restore waits
	// for an election.
	chunkTimeout = 10 * time.Second
	// importsAtOnce is how many streams are restored in the cluster at a time.
	importsAtOnce = 16
)

// streamExport is a log or a bucket during the move into the cluster. Its content is in a file
// of its own: all messages with their numbers and times.
type streamExport struct {
	Name string `json:"name"`
	// Config and State are as the server reports them.
	Config map[string]any  `json:"config"`
	State  json.RawMessage `json:"state"`
	// Last, Messages and Bytes are from State: the last sequence, and the size of the content.
	Last     uint64 `json:"last"`
	Messages uint64 `json:"messages"`
	Bytes    uint64 `json:"bytes"`
}

func (e streamExport) file(dir string) string {
	return filepath.Join(dir, exportDir, e.Name+".snapshot")
}

// maxDuration bounds the copying of the content.
func (e streamExport) maxDuration() time.Duration {
	return time.Duration(e.Messages/slowestMessages+e.Bytes/slowestBytes) * time.Second
}

// isLogOrBucket reports whether a stream is a log or a bucket.
func isLogOrBucket(name string) bool {
	return strings.HasPrefix(name, logStreamPrefix) || strings.HasPrefix(name, streamName+"-")
}

// exportStreams writes a snapshot of each log and bucket.
func (mv mover) exportStreams(ctx context.Context) ([]streamExport, error) {
	if err := os.MkdirAll(filepath.Join(mv.dir, exportDir), 0o700); err != nil {
		return nil, fmt.Errorf("export the streams: %w", err)
	}
	var all []streamExport
	names := mv.js.StreamNames(ctx)
	for name := range names.Name() {
		if !isLogOrBucket(name) {
			continue
		}
		export, err := mv.exportStream(ctx, name)
		if err != nil {
			return nil, fmt.Errorf("export %s: %w", name, err)
		}
		all = append(all, export)
	}
	return all, names.Err()
}

func (mv mover) exportStream(ctx context.Context, name string) (streamExport, error) {
	inbox := mv.nc.NewInbox()
	sub, err := mv.nc.SubscribeSync(inbox)
	if err != nil {
		return streamExport{}, err
	}
	// An error means that the connection has ended.
	defer func() { _ = sub.Unsubscribe() }()
	var answer struct {
		Error  *jetstream.APIError `json:"error"`
		Config map[string]any      `json:"config"`
		State  json.RawMessage     `json:"state"`
	}
	err = mv.api(ctx, "STREAM.SNAPSHOT."+name, map[string]any{
		"deliver_subject": inbox, "no_consumers": true, "chunk_size": chunkSize,
	}, &answer)
	if err == nil && answer.Error != nil {
		err = answer.Error
	}
	if err != nil {
		return streamExport{}, err
	}
	var state struct {
		Last     uint64 `json:"last_seq"`
		Messages uint64 `json:"messages"`
		Bytes    uint64 `json:"bytes"`
	}
	if err := json.Unmarshal(answer.State, &state); err != nil {
		return streamExport{}, err
	}
	out := streamExport{
		Name: name, Config: answer.Config, State: answer.State,
		Last: state.Last, Messages: state.Messages, Bytes: state.Bytes,
	}
	err = replaceFile(out.file(mv.dir), func(w io.Writer) error { return receiveSnapshot(ctx, sub, w) })
	return out, err
}

// receiveSnapshot writes the chunks of a snapshot until the empty last one.
func receiveSnapshot(ctx context.Context, sub *nats.Subscription, w io.Writer) error {
	for {
		chunk, err := nextChunk(ctx, sub)
		if err != nil {
			return err
		}
		if len(chunk.Data) == 0 {
			if status := chunk.Header.Get("Status"); status != "" && status != "204" {
				return fmt.Errorf("snapshot: status %s %s", status, chunk.Header.Get("Description"))
			}
			return nil
		}
		if _, err := w.Write(chunk.Data); err != nil {
			return err
		}
		if chunk.Reply != "" {
			if err := chunk.Respond(nil); err != nil {
				return err
			}
		}
	}
}

func nextChunk(ctx context.Context, sub *nats.Subscription) (*nats.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	return sub.NextMsgWithContext(ctx)
}

// importStreams restores the exported streams in the cluster, several at a time: each one waits for
// the election of its leader, and the whole pool waits for all of them. A stream that is complete is
// skipped: nothing writes to it before the move is over.
func (mv mover) importStreams(ctx context.Context, all []streamExport) error {
	return importEach(ctx, all, func(ctx context.Context, one streamExport) error {
		return mv.retryEach(ctx, moveTimeout+one.maxDuration(), func(ctx context.Context) error {
			done, err := mv.imported(ctx, one)
			if err == nil && !done {
				err = mv.importStream(ctx, one)
			}
			return err
		})
	})
}

// importEach calls f for each stream, for importsAtOnce of them at a time.
func importEach(ctx context.Context, all []streamExport, f func(context.Context, streamExport) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(importsAtOnce)
	for _, one := range all {
		group.Go(func() error {
			if err := f(ctx, one); err != nil {
				return fmt.Errorf("import %s: %w", one.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// imported reports whether an earlier attempt succeeded. It removes a partial stream, which
// does not answer.
func (mv mover) imported(ctx context.Context, export streamExport) (bool, error) {
	look, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	stream, err := mv.js.Stream(look, export.Name)
	switch {
	case err == nil && stream.CachedInfo().State.LastSeq == export.Last:
		return true, nil
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return false, nil
	}
	remove, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	err = mv.js.DeleteStream(remove, export.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		err = nil
	}
	return false, asRetryable(err)
}

func (mv mover) importStream(ctx context.Context, export streamExport) error {
	file, err := os.Open(export.file(mv.dir))
	if err != nil {
		return err
	}
	defer file.Close()
	export.Config["num_replicas"] = Copies
	var answer struct {
		Error   *jetstream.APIError `json:"error"`
		Deliver string              `json:"deliver_subject"`
	}
	err = mv.api(ctx, "STREAM.RESTORE."+export.Name, map[string]any{"config": export.Config, "state": export.State}, &answer)
	if err == nil && answer.Error != nil {
		err = asRetryable(answer.Error)
	}
	if err != nil {
		return err
	}
	return mv.sendSnapshot(ctx, answer.Deliver, bufio.NewReaderSize(file, chunkSize))
}

// sendSnapshot sends a snapshot in chunks, with an empty chunk at its end.
func (mv mover) sendSnapshot(ctx context.Context, to string, r io.Reader) error {
	buf := make([]byte, chunkSize)
	for {
		n, err := io.ReadFull(r, buf)
		end := errors.Is(err, io.EOF)
		if err != nil && !end && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		var answer struct {
			Error *jetstream.APIError `json:"error"`
		}
		if err := mv.sendChunk(ctx, to, buf[:n], &answer); err != nil {
			return err
		}
		if answer.Error != nil {
			return asRetryable(answer.Error)
		}
		if end {
			return nil
		}
	}
}

func (mv mover) sendChunk(ctx context.Context, to string, chunk []byte, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, chunkTimeout)
	defer cancel()
	m, err := mv.nc.RequestWithContext(ctx, to, chunk)
	if err != nil || len(m.Data) == 0 {
		return err
	}
	return json.Unmarshal(m.Data, answer)
}
