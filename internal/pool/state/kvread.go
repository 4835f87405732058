package state

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// patience is how long a reader gives a writer whose commit it sees half
	// written, before it writes the rest.
	patience      = 100 * time.Millisecond
	patiencePause = 2 * time.Millisecond
)

// Since tells f every key that was changed after a revision, in order, and
// returns the bucket's last revision then. Tombstones are gone after an hour: who
// has not looked for longer must start at 0.
func (k *KV) Since(ctx context.Context, revision uint64, f func(Entry)) (uint64, error) {
	r := &kvReader{k: k, tell: f, at: revision}
	for done := false; !done; {
		var err error
		if done, err = r.step(ctx); err != nil {
			return r.at, fmt.Errorf("read %s: %w", k.stream, err)
		}
	}
	return r.at, nil
}

// kvReader reads a bucket's stream to its end.
type kvReader struct {
	k    *KV
	tell func(Entry)
	at   uint64
	// missing are the changes of the last record that have not come yet.
	missing []KVChange
	since   time.Time // when they were first missed
}

// step reads as far as a copy knows, and reports whether that was the end: of
// the stream and of the last commit.
func (r *kvReader) step(ctx context.Context) (done bool, err error) {
	last, err := r.k.s.lastSeq(ctx, r.k.stream)
	if err != nil {
		return false, err
	}
	if err := r.read(ctx); err != nil {
		return false, err
	}
	if r.at < last {
		// A copy may be behind its leader, or what the last numbers stood for
		// has expired.
		current, err := r.k.Current(ctx, r.at)
		if err != nil || !current {
			return false, err
		}
		r.at = last
	}
	if len(r.missing) == 0 {
		return true, nil
	}
	return false, r.complete(ctx)
}

// complete writes the rest of the last commit when its writer does not.
func (r *kvReader) complete(ctx context.Context) error {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if time.Since(r.since) < patience {
		return sleep(ctx, patiencePause)
	}
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := r.k.write(attempt, r.missing, r.at)
	if err == nil || errors.Is(err, ErrConflict) || temporary(err) && ctx.Err() == nil {
		return nil // The next step sees how far it came.
	}
	return err
}

func (r *kvReader) read(ctx context.Context) error {
	return r.k.s.pages(ctx, r.k.get, ">", r.at, func(m *nats.Msg) (uint64, error) {
		err := r.take(m)
		return r.at, err
	})
}

// take treats the stream's next message.
func (r *kvReader) take(m *nats.Msg) error {
	if strings.HasPrefix(m.Header.Get("Nats-Subject"), r.k.marks) {
		found, err := r.k.markOf(m)
		if err != nil {
			return err
		}
		r.at, r.missing, r.since = found.seq, found.record.changes, time.Time{}
		return nil
	}
	e, err := decodeEntryOf(m, r.k.keys)
	if err != nil {
		return err
	}
	r.at = e.Revision
	r.missing = without(r.missing, e.Key)
	r.tell(e)
	return nil
}

// without takes a key's change away. It is the first one as a rule.
func without(changes []KVChange, key string) []KVChange {
	if len(changes) > 0 && changes[0].Key == key {
		return changes[1:]
	}
	return slices.DeleteFunc(changes, func(c KVChange) bool { return c.Key == key })
}

// A mark is a record as it lies in the stream.
type mark struct {
	writer string
	seq    uint64
	time   time.Time
	record record
}

func (k *KV) markOf(m *nats.Msg) (mark, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return mark{}, fmt.Errorf("revision of a record: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return mark{}, fmt.Errorf("time of a record: %w", err)
	}
	rec, err := decodeRecord(m.Data)
	return mark{writer: strings.TrimPrefix(m.Header.Get("Nats-Subject"), k.marks), seq: seq, time: at, record: rec}, err
}

// Tidy removes the records of writers that have not committed since a moment.
// The bucket's last record stays.
func (k *KV) Tidy(ctx context.Context, before time.Time) error {
	var all []mark
	err := k.s.pages(ctx, k.get, k.marks+">", 0, func(m *nats.Msg) (uint64, error) {
		found, err := k.markOf(m)
		all = append(all, found)
		return found.seq, err
	})
	if err != nil {
		return fmt.Errorf("tidy %s: %w", k.stream, err)
	}
	old := slices.DeleteFunc(all[:max(0, len(all)-1)], func(m mark) bool { return !m.time.Before(before) })
	for _, m := range old {
		if err := k.s.purge(ctx, k.stream, k.marks+m.writer, m.seq+1); err != nil {
			return fmt.Errorf("tidy %s: %w", k.stream, err)
		}
	}
	return nil
}

// purge removes a subject's messages below a sequence, all with 0.
func (s *State) purge(ctx context.Context, stream, subject string, below uint64) error {
	opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
	if below > 0 {
		opts = append(opts, jetstream.WithPurgeSequence(below))
	}
	return s.retry(ctx, func(ctx context.Context) error {
		found, err := s.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		return found.Purge(ctx, opts...)
	})
}
