package state

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

const (
	// maxHeader is what the headers of a message have room for.
	maxHeader = 4 << 10

	// expiresHeader says when a key is gone, in milliseconds since 1970. The server
	// removes its message some time after that.
	expiresHeader = "Outboard-Expires"
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
// committed since c.After, and then it has changed nothing. Its record is stored
// then; the messages for the keys are not, before Spread.
func (k *KV) Commit(ctx context.Context, c Commit) error {
	record, err := k.record(c)
	if err != nil {
		return err
	}
	again := false
	err = k.s.retry(ctx, func(ctx context.Context) error {
		err := k.commit(ctx, record)
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

func (k *KV) commit(ctx context.Context, record *nats.Msg) error {
	a, err := k.s.publishOnce(ctx, record)
	if err == nil && a.Duplicate {
		err = ErrBehind
	}
	return err
}

// Spread writes the messages for the keys of a commit that was made, which has
// changes. The writer must not commit again before: its next record takes the
// place of this one, out of which readers write what is missing. When Spread fails,
// the writer must read on with Since from c.After, which sees to all.
func (k *KV) Spread(ctx context.Context, c Commit) error {
	err := k.s.attemptOnce(ctx, attemptTimeout, func(ctx context.Context) error {
		return k.write(ctx, c.Changes, c.After+1)
	})
	if err != nil {
		return fmt.Errorf("spread a commit to %s: %w", k.stream, err)
	}
	return nil
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
	m := keyMessage{k: k, after: make([]string, 1)}
	for i, c := range changes[:last] {
		if err := k.s.nc.PublishMsg(m.of(c, after+uint64(i))); err != nil {
			return err
		}
	}
	_, err := k.s.publishOnce(ctx, m.of(changes[last], after+uint64(last)))
	return err
}

// keyMessage makes the messages for keys, one after the other: a message is
// encoded when it is published, so all can be one.
type keyMessage struct {
	k     *KV
	msg   nats.Msg
	after []string
}

func (m *keyMessage) of(c KVChange, after uint64) *nats.Msg {
	m.msg.Subject, m.msg.Data = m.k.keys+c.Key, c.Value
	m.after[0] = strconv.FormatUint(after, 10)
	if m.msg.Header == nil || len(m.msg.Header) > 1 {
		m.msg.Header = nats.Header{jetstream.ExpectedLastSeqHeader: m.after}
	}
	switch now := time.Now(); {
	case c.Deleted || c.expired(now): // The server may have removed it, and what was there before must not come back.
		m.msg.Header[opHeader] = []string{opDelete}
		m.msg.Header[ttlHeader] = []string{seconds(tombstoneTTL)}
	case c.ExpiresMilli != 0:
		m.msg.Header[expiresHeader] = []string{strconv.FormatInt(c.ExpiresMilli, 10)}
		m.msg.Header[ttlHeader] = []string{seconds(time.UnixMilli(c.ExpiresMilli).Sub(now))}
	}
	return &m.msg
}

// expiry reads when a key is gone.
func expiry(header func(string) string) int64 {
	at, err := strconv.ParseInt(header(expiresHeader), 10, 64)
	if err != nil {
		return 0
	}
	return at
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
