package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const (
	// copiesSubject is where a voter reports the state of its own copies.
	copiesSubject = "outboard.copies."
	copiesPause   = 50 * time.Millisecond
	// absentAfter is how long a voter may be silent before it counts as absent. The move to three copies
	// continues without it: it receives its copies when it is back.
	absentAfter = 10 * time.Second
)

// A reporter reports how far a voter's own copies are replicated. The leader of a stream knows
// only what it has sent.
type reporter struct {
	nc *nats.Conn
	// sys is a client of the system account, which administers the cluster.
	sys *nats.Conn
}

func startReporter(srv *natsserver.Server, c *clients) (r *reporter, err error) {
	r = new(reporter)
	defer func() {
		if err != nil {
			r.close()
			r, err = nil, fmt.Errorf("report copies: %w", err)
		}
	}()
	if r.sys, err = nats.Connect(nats.DefaultURL, nats.InProcessServer(srv), nats.NoReconnect(), c.ofSystem(srv)); err != nil {
		return r, err
	}
	if r.nc, err = nats.Connect(nats.DefaultURL, nats.InProcessServer(srv), nats.NoReconnect(), c.own()); err != nil {
		return r, err
	}
	_, err = r.nc.Subscribe(copiesSubject+srv.Name(), func(m *nats.Msg) {
		// An error means that the server stops.
		if last, err := localCopies(srv); err == nil {
			if text, err := json.Marshal(last); err == nil {
				_ = m.Respond(text)
			}
		}
	})
	return r, errors.Join(err, r.reportRoutes(srv))
}

func (r *reporter) close() {
	if r == nil {
		return
	}
	for _, nc := range []*nats.Conn{r.nc, r.sys} {
		if nc != nil {
			nc.Close()
		}
	}
}

// localCopies returns the streams of the server itself, with their last sequences.
func localCopies(srv *natsserver.Server) (map[string]uint64, error) {
	info, err := srv.Jsz(&natsserver.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		return nil, err
	}
	last := make(map[string]uint64)
	for _, account := range info.AccountDetails {
		for _, stream := range account.Streams {
			last[stream.Name] = stream.State.LastSeq
		}
	}
	return last, nil
}

// waitCopies waits until the voters hold the imported streams: all voters that answer, and at least
// two, so that any one voter may then die.
func (mv mover) waitCopies(ctx context.Context, voters []member, all []streamExport) error {
	if len(all) == 0 {
		return nil
	}
	start := time.Now()
	for {
		have, silent := mv.countCopies(ctx, voters, all)
		switch {
		case have == len(voters), have >= 2 && have+silent == len(voters) && time.Since(start) > absentAfter:
			return nil
		case ctx.Err() != nil:
			return unreachable("copy the streams to the voters", ctx.Err())
		}
		if err := sleep(ctx, copiesPause); err != nil {
			return unreachable("copy the streams to the voters", err)
		}
	}
}

// countCopies asks each voter. A voter that does not answer counts as silent.
func (mv mover) countCopies(ctx context.Context, voters []member, all []streamExport) (have, silent int) {
	for _, v := range voters {
		last, err := mv.copiesOf(ctx, v.Name)
		switch {
		case err != nil:
			silent++
		case holds(last, all):
			have++
		}
	}
	return have, silent
}

func (mv mover) copiesOf(ctx context.Context, name string) (last map[string]uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	m, err := mv.nc.RequestWithContext(ctx, copiesSubject+name, nil)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(m.Data, &last)
	return last, err
}

func holds(last map[string]uint64, all []streamExport) bool {
	for _, one := range all {
		if seq, ok := last[one.Name]; !ok || seq != one.Last {
			return false
		}
	}
	return true
}

// votersOf returns the voters that an exported table names.
func votersOf(entries []exportEntry) ([]member, error) {
	for _, e := range entries {
		if e.Key == votersKey {
			var voters []member
			err := json.Unmarshal(e.Value, &voters)
			return voters, err
		}
	}
	return nil, errors.New("the exported table names no voters")
}
