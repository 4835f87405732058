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
	// completeAfter is how long a reader waits for the writer to complete a partly
	// written commit, before it writes the rest.
	completeAfter = 100 * time.Millisecond
	completePoll  = time.Millisecond

	// fewMessages is the number up to which messages are requested one by one.
	fewMessages = 500
	bulkTimeout = 2 * time.Minute
	bulkPull    = 5000
	// heartbeat is the interval of the heartbeats of a watcher's consumer. After two
	// missing ones the watcher creates another consumer; by default that takes half a
	// minute.
	heartbeat = time.Second
	pullFor   = 10 * heartbeat
)

// Since calls f with every key that has changed after a revision, in order, and
// returns the bucket's last revision. Tombstones expire after an hour, so a caller
// whose revision is older must start at 0.
func (k *KV) Since(ctx context.Context, revision uint64, f func(Entry)) (uint64, error) {
	r := &kvReader{k: k, yield: f, at: revision}
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
	k     *KV
	yield func(Entry)
	at    uint64
	// missing are the changes of the last record whose messages have not been read yet.
	missing []KVChange
	since   time.Time // when step first found them missing
}

// step reads up to the leader's last message, and reports whether that was the end
// of a commit.
func (r *kvReader) step(ctx context.Context) (done bool, err error) {
	last, err := r.k.s.lastSeq(ctx, r.k.stream)
	switch {
	case err != nil:
		return false, err
	case last > r.at+fewMessages:
		err = r.readMany(ctx)
	default:
		err = r.readFew(ctx, last)
	}
	if err != nil {
		return false, err
	}
	if r.at < last {
		// A replica may be behind its leader, or the messages with the last numbers
		// have expired.
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

// complete writes the rest of the last commit if its writer does not.
func (r *kvReader) complete(ctx context.Context) error {
	if r.since.IsZero() {
		r.since = time.Now()
	}
	if time.Since(r.since) < completeAfter {
		return sleep(ctx, completePoll)
	}
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	err := r.k.write(attempt, r.missing, r.at)
	if err == nil || errors.Is(err, ErrConflict) || isRetryable(err) && ctx.Err() == nil {
		return nil // The next step reads the messages that were written.
	}
	return err
}

// readFew requests each message up to the last from the leader, concurrently. A direct
// get of many messages would make the server scan every key of the bucket.
func (r *kvReader) readFew(ctx context.Context, last uint64) error {
	if last <= r.at {
		return nil
	}
	var found []leaderMsg
	err := r.k.s.retry(ctx, func(ctx context.Context) (err error) {
		found, err = r.k.s.leaderGetRange(ctx, r.k.stream, r.at+1, last)
		return err
	})
	for _, m := range found {
		if err != nil {
			return err
		}
		var s stored
		if s, err = m.stored(); err == nil {
			err = r.apply(s)
		}
	}
	if err == nil {
		r.at = last
	}
	return err
}

// readMany reads to the end with a consumer, for which the server scans every key once.
func (r *kvReader) readMany(ctx context.Context) error {
	return r.k.s.retryEach(ctx, bulkTimeout, func(ctx context.Context) error {
		consumer, err := r.consumer(ctx)
		if err != nil {
			return err
		}
		if info := consumer.CachedInfo(); info != nil && info.NumPending == 0 {
			return nil
		}
		msgs, err := consumer.Messages(jetstream.PullMaxMessages(bulkPull))
		if err != nil {
			return err
		}
		defer msgs.Stop()
		return r.applyAll(ctx, msgs)
	})
}

// consumer creates a consumer, with one attempt: a server that dies does not answer.
func (r *kvReader) consumer(ctx context.Context) (jetstream.Consumer, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	return r.k.s.js.OrderedConsumer(ctx, r.k.stream, jetstream.OrderedConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartSequencePolicy,
		OptStartSeq:   r.at + 1,
		// The next attempt creates another one.
		MaxResetAttempts: 1,
	})
}

// applyAll applies messages up to the stream's end. It returns an error if none arrives for
// a while; the next attempt's consumer continues after the last one.
func (r *kvReader) applyAll(ctx context.Context, msgs jetstream.MessagesContext) error {
	for ctx.Err() == nil {
		m, err := msgs.Next(jetstream.NextMaxWait(attemptTimeout))
		if err != nil {
			return err
		}
		meta, err := m.Metadata()
		if err != nil {
			return fmt.Errorf("message of %s: %w", r.k.stream, err)
		}
		err = r.apply(stored{
			subject: m.Subject(), seq: meta.Sequence.Stream, time: meta.Timestamp,
			data: m.Data(), deleted: deletion(m.Headers().Get), expires: expiry(m.Headers().Get),
		})
		if err != nil || meta.NumPending == 0 {
			return err
		}
	}
	return ctx.Err()
}

// stored is a message of the stream.
type stored struct {
	subject string
	seq     uint64
	time    time.Time
	data    []byte
	deleted bool
	expires int64 // as in Entry
}

// apply processes the stream's next message.
func (r *kvReader) apply(m stored) error {
	if m.seq <= r.at {
		return nil
	}
	if strings.HasPrefix(m.subject, r.k.marks) {
		rec, err := decodeRecord(m.data)
		if err != nil {
			return fmt.Errorf("revision %d: %w", m.seq, err)
		}
		r.at, r.missing, r.since = m.seq, rec.changes, time.Time{}
		return nil
	}
	key, ok := strings.CutPrefix(m.subject, r.k.keys)
	if !ok {
		return fmt.Errorf("subject %q is not that of a key", m.subject)
	}
	r.at = m.seq
	r.missing = removeChange(r.missing, key)
	r.yield(Entry{Key: key, Value: m.data, Revision: m.seq, Deleted: m.deleted, ExpiresMilli: m.expires})
	return nil
}

// removeChange removes a key's change, which is usually the first one.
func removeChange(changes []KVChange, key string) []KVChange {
	if len(changes) > 0 && changes[0].Key == key {
		return changes[1:]
	}
	return slices.DeleteFunc(changes, func(c KVChange) bool { return c.Key == key })
}

// Tidy deletes the records of writers that have not committed since a time.
// It retains the bucket's last record.
func (k *KV) Tidy(ctx context.Context, before time.Time) error {
	var all []stored
	err := k.s.pages(ctx, k.get, k.marks+">", func(m *nats.Msg) (uint64, error) {
		found, err := storedOf(m)
		all = append(all, found)
		return found.seq, err
	})
	if err != nil {
		return fmt.Errorf("tidy %s: %w", k.stream, err)
	}
	old := slices.DeleteFunc(all[:max(0, len(all)-1)], func(m stored) bool { return !m.time.Before(before) })
	for _, m := range old {
		if err := k.s.purge(ctx, k.stream, m.subject, m.seq+1); err != nil {
			return fmt.Errorf("tidy %s: %w", k.stream, err)
		}
	}
	return nil
}

// storedOf decodes the response of a direct get.
func storedOf(m *nats.Msg) (stored, error) {
	seq, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return stored{}, fmt.Errorf("sequence of a message: %w", err)
	}
	at, err := time.Parse(time.RFC3339Nano, m.Header.Get("Nats-Time-Stamp"))
	if err != nil {
		return stored{}, fmt.Errorf("time of a message: %w", err)
	}
	return stored{
		subject: m.Header.Get("Nats-Subject"), seq: seq, time: at, data: m.Data,
		deleted: deletion(m.Header.Get), expires: expiry(m.Header.Get),
	}, nil
}

// purge deletes a subject's messages below a sequence number, or all if it is 0.
func (c *client) purge(ctx context.Context, stream, subject string, below uint64) error {
	opts := []jetstream.StreamPurgeOpt{jetstream.WithPurgeSubject(subject)}
	if below > 0 {
		opts = append(opts, jetstream.WithPurgeSequence(below))
	}
	return c.retry(ctx, func(ctx context.Context) error {
		found, err := c.js.Stream(ctx, stream)
		if err != nil {
			return err
		}
		return found.Purge(ctx, opts...)
	})
}
