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

// maxHeader is what the headers of a message have room for.
const maxHeader = 4 << 10

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
	record, err := k.record(c)
	if err != nil {
		return err
	}
	again := false
	err = k.s.retry(ctx, func(ctx context.Context) error {
		err := k.commit(ctx, c, record)
		if again && errors.Is(err, ErrConflict) {
			err = k.recorded(ctx, c)
		}
		again = true
		return err
	})
	if err != nil {
		return fmt.Errorf("commit to %s: %w", k.stream, err)
	}
	return nil
}

// commit stores the record, and the keys once that is the stream's last message.
// Before, they might come right after somebody else's.
func (k *KV) commit(ctx context.Context, c Commit, record *nats.Msg) error {
	a, err := k.s.ask(ctx, record)
	switch {
	case err != nil:
		return err
	case a.Duplicate:
		return ErrBehind
	case len(c.Changes) == 0:
		return nil
	}
	err = k.write(ctx, c.Changes, a.Seq)
	if errors.Is(err, ErrConflict) {
		return ErrBehind
	}
	return err
}

func (k *KV) record(c Commit) (*nats.Msg, error) {
	rec := record{id: c.id(), changes: c.Changes}
	m := &nats.Msg{Subject: k.marks + c.Writer, Data: rec.encode(), Header: make(nats.Header, 2)}
	if len(m.Data) > MaxValue-maxHeader {
		return nil, outboard.Errorf(outboard.Exhausted, "commit to "+k.stream, "%d bytes are too many", len(m.Data))
	}
	m.Header[jetstream.MsgIDHeader] = []string{rec.id}
	m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(c.After, 10)}
	return m, nil
}

// write stores messages for keys as a chain: each only right after the one before
// it, the first one after a revision. Its error may be about any of them.
func (k *KV) write(ctx context.Context, changes []KVChange, after uint64) error {
	last := len(changes) - 1
	for i, c := range changes[:last] {
		if err := k.s.nc.PublishMsg(k.message(c, after+uint64(i))); err != nil {
			return err
		}
	}
	_, err := k.s.ask(ctx, k.message(changes[last], after+uint64(last)))
	return err
}

func (k *KV) message(c KVChange, after uint64) *nats.Msg {
	m := &nats.Msg{Subject: k.keys + c.Key, Data: c.Value, Header: make(nats.Header, 3)}
	m.Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(after, 10)}
	if c.Deleted {
		m.Header[opHeader] = []string{opDelete}
		m.Header[ttlHeader] = []string{seconds(tombstoneTTL)}
	}
	return m
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
