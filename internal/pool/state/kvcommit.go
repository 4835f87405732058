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
	// maxHeader is the space that is reserved for the headers of a message, in bytes.
	maxHeader = 4 << 10

	// expiresHeader is the time at which a key expires, in milliseconds since 1970. The
	// server deletes its message some time later.
	expiresHeader = "Outboard-Expires"
)

// ErrBehind reports that a commit has succeeded, but that its revisions are unknown or not
// the expected ones: a writer with a view of the bucket must update it with Since.
var ErrBehind = errors.New("the commit has succeeded, and the bucket has other changes as well")

// A Commit is a set of changes that a writer makes atomically.
type Commit struct {
	// Writer identifies the writer and is unique in the bucket.
	Writer string
	// Number identifies the commit and is unique for the writer.
	Number uint64
	// After is the bucket's last revision that the writer has read.
	After uint64
	// Changes are of distinct keys. The sum of their keys and values is at most MaxCommit
	// bytes.
	Changes []KVChange
}

// Revision returns the revision of the change with index i after the commit.
func (c Commit) Revision(i int) uint64 { return c.After + 2 + uint64(i) }

// Last returns the bucket's last revision directly after the commit.
func (c Commit) Last() uint64 { return c.After + 1 + uint64(len(c.Changes)) }

func (c Commit) id() string { return c.Writer + "." + strconv.FormatUint(c.Number, 10) }

// Commit stores the record of a commit, and so makes all its changes or none. It returns
// ErrConflict, and changes nothing, if another writer has committed since c.After. Spread
// then writes the messages for the keys.
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

// Spread writes the messages for the keys of a successful commit. The writer must not commit again
// before Spread returns: its next record replaces this one, from which readers complete the
// messages. If Spread fails, the writer must call Since from c.After, which completes them.
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

// write stores messages for keys as a chain: each one only directly after its predecessor,
// the first one after a revision. Its error may concern any of them.
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

// keyMessage encodes the messages for keys, one after the other, in one reused nats.Msg:
// publishing a message copies it.
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
	case c.Deleted || c.expired(now): // The server may have deleted it; an older value must not return.
		m.msg.Header[opHeader] = []string{opDelete}
		m.msg.Header[ttlHeader] = []string{seconds(tombstoneTTL)}
	case c.ExpiresMilli != 0:
		m.msg.Header[expiresHeader] = []string{strconv.FormatInt(c.ExpiresMilli, 10)}
		m.msg.Header[ttlHeader] = []string{seconds(time.UnixMilli(c.ExpiresMilli).Sub(now))}
	}
	return &m.msg
}

// expiry returns the time at which a key expires, in milliseconds since 1970, or 0.
func expiry(header func(string) string) int64 {
	at, err := strconv.ParseInt(header(expiresHeader), 10, 64)
	if err != nil {
		return 0
	}
	return at
}

// recorded returns ErrBehind if a conflict is with the commit's own record, which an earlier
// attempt stored, and ErrConflict otherwise. Only the writer replaces its record.
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
