package state

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

// ErrBehind says that a commit is made, but that its revisions are not the
// expected ones, or not known: who keeps a view must read on with Since.
var ErrBehind = errors.New("the commit is made, and the bucket has changed")

// A Commit is what a writer wants to change at once.
type Commit struct {
	// Writer is a word of its own for each that writes to the bucket.
	Writer string
	// Number is another one for each commit of the writer.
	Number uint64
	// After is the bucket's last revision, as the writer knows it.
	After uint64
	// Changes are of different keys. Their keys and values have MaxCommit bytes
	// together at most.
	Changes []KVChange
}

// Revision is that of the change with index i once the commit is made.
func (c Commit) Revision(i int) uint64 { return c.After + 2 + uint64(i) }

// Last is the bucket's last revision right after the commit.
func (c Commit) Last() uint64 { return c.After + 1 + uint64(len(c.Changes)) }

func (c Commit) id() string { return c.Writer + "." + strconv.FormatUint(c.Number, 10) }

// Commit makes all changes or none. It returns ErrConflict when somebody else has
// committed since c.After, and then it has changed nothing.
func (k *KV) Commit(ctx context.Context, c Commit) error {
	msgs, err := k.messages(c)
	if err != nil {
		return err
	}
	attempt := func(ctx context.Context) error { return k.send(ctx, msgs) }
	err = retry(ctx, func(ctx context.Context) error {
		err := attempt(ctx)
		attempt = func(ctx context.Context) error { return k.resend(ctx, c, msgs) }
		if errors.Is(err, ErrConflict) {
			// Whether the record itself was refused is not known.
			err = attempt(ctx)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("commit to %s: %w", k.stream, err)
	}
	return nil
}

// messages are the record and the keys, as a chain.
func (k *KV) messages(c Commit) ([]*nats.Msg, error) {
	rec := record{id: c.id(), changes: c.Changes}
	first := &nats.Msg{Subject: k.marks + c.Writer, Data: rec.encode(), Header: make(nats.Header, 2)}
	if len(first.Data) > MaxValue {
		return nil, outboard.Errorf(outboard.Exhausted, "commit to "+k.stream, "%d bytes are too many", len(first.Data))
	}
	first.Header[jetstream.MsgIDHeader] = []string{rec.id}
	msgs := append(make([]*nats.Msg, 0, len(c.Changes)+1), first)
	for _, change := range c.Changes {
		msgs = append(msgs, k.message(change))
	}
	chain(msgs, c.After)
	return msgs, nil
}

func (k *KV) message(c KVChange) *nats.Msg {
	m := &nats.Msg{Subject: k.keys + c.Key, Data: c.Value, Header: make(nats.Header, 3)}
	if c.Deleted {
		m.Header[opHeader] = []string{opDelete}
		m.Header[ttlHeader] = []string{seconds(tombstoneTTL)}
	}
	return m
}

// chain makes each message one that is stored right after the one before it only.
func chain(msgs []*nats.Msg, after uint64) {
	for i, m := range msgs {
		m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(after+uint64(i), 10)}
	}
}

// send stores a chain. Its error may be about any part of it.
func (k *KV) send(ctx context.Context, msgs []*nats.Msg) error {
	last := len(msgs) - 1
	for _, m := range msgs[:last] {
		if err := k.s.nc.PublishMsg(m); err != nil {
			return err
		}
	}
	_, err := k.s.ask(ctx, msgs[last])
	return err
}

// resend finds out what became of earlier attempts, and goes on from there.
func (k *KV) resend(ctx context.Context, c Commit, msgs []*nats.Msg) error {
	a, err := k.s.ask(ctx, msgs[0])
	switch {
	case errors.Is(err, ErrConflict):
		return k.recorded(ctx, c)
	case err != nil:
		return err
	case a.Duplicate:
		return ErrBehind
	}
	if len(msgs) == 1 {
		return nil
	}
	err = k.send(ctx, msgs[1:])
	if errors.Is(err, ErrConflict) {
		return ErrBehind
	}
	return err
}

// recorded finds out whether a conflict is with the commit's own record, which
// nobody but the writer replaces.
func (k *KV) recorded(ctx context.Context, c Commit) error {
	m, err := k.s.leaderGet(ctx, k.stream, leaderQuery{LastBySubject: k.marks + c.Writer})
	if errors.Is(err, ErrNotFound) {
		return ErrConflict
	}
	if err != nil {
		return err
	}
	rec, err := decodeRecord(m.Data)
	if err == nil && rec.id == c.id() {
		err = ErrBehind
	} else if err == nil {
		err = ErrConflict
	}
	return err
}
