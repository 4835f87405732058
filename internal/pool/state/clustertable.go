package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// roomWait is how long a new table waits for a cluster whose servers have just started to have room
// for three copies.
const roomWait = 30 * time.Second

// openExternal opens the table of an existing cluster, or creates it.
func openExternal(ctx context.Context, s *State) error {
	err := s.waitStream(ctx)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		err = createExternal(ctx, s)
	case err == nil:
		err = addCopies(ctx, s)
	}
	if err != nil {
		return fmt.Errorf("open the table in the NATS cluster: %w", err)
	}
	return s.waitTable(ctx)
}

// createExternal creates the table with three copies, or with one if the cluster has no room for them.
func createExternal(ctx context.Context, s *State) error {
	var err error
	for end := time.Now().Add(roomWait); ; {
		if err = s.createTable(ctx, Copies); !isRefused(err) {
			return err
		}
		if isAlone(err) || time.Now().After(end) {
			break
		}
		s.log.Info("the NATS cluster has no room yet for three copies of the pool's state", "reason", err)
		if err := sleep(ctx, retryPause); err != nil {
			return err
		}
	}
	reportOneCopy(s, err)
	return s.createTable(ctx, 1)
}

// addCopies gives the table three copies if it was created with one.
func addCopies(ctx context.Context, s *State) error {
	return s.retry(ctx, func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, streamName)
		if err != nil {
			return err
		}
		cfg := stream.CachedInfo().Config
		if cfg.Replicas >= Copies {
			return nil
		}
		cfg.Replicas = Copies
		if _, err = s.js.UpdateStream(ctx, cfg); isRefused(err) {
			reportOneCopy(s, err)
			return nil
		}
		return err
	})
}

func reportOneCopy(s *State, reason error) {
	s.log.Warn("the pool's state has one copy, and is lost with its NATS server: the next node that starts with three servers in the cluster adds two", "reason", reason)
}

// isRefused reports that the cluster has refused an operation, and would again.
func isRefused(err error) bool {
	_, ok := errors.AsType[*jetstream.APIError](err)
	return ok && !isRetryable(err)
}

// isAlone reports that a server has refused copies since it belongs to no cluster.
func isAlone(err error) bool {
	const replicasNotSupported = 10074 // of nats-server
	api, ok := errors.AsType[*jetstream.APIError](err)
	return ok && api.ErrorCode == replicasNotSupported
}

// waitStream waits until a server reports whether the table exists.
func (t table) waitStream(ctx context.Context) error {
	var missing error
	err := t.retry(ctx, func(ctx context.Context) error {
		_, err := t.js.Stream(ctx, streamName)
		if missing = nil; errors.Is(err, jetstream.ErrStreamNotFound) {
			missing, err = err, nil
		}
		return err
	})
	return cmp.Or(err, missing)
}
