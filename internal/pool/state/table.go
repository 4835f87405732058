package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

// The table is a NATS key-value bucket, so that NATS's tools can read it.
const (
	directGetPrefix = "$JS.API.DIRECT.GET."

	streamName    = "KV_outboard"
	keyPrefix     = "$KV.outboard."
	changesPrefix = "outboard.changes."
	directGet     = directGetPrefix + streamName

	opHeader  = "KV-Operation"
	opDelete  = "DEL"
	ttlHeader = "Nats-TTL"

	// MaxValue bounds a value.
	MaxValue = 1 << 20
	// tombstoneTTL is how long a deleted key is remembered.
	tombstoneTTL = time.Hour
)

// table is the pool's key-value table, whose revisions order all changes of the pool.
type table struct{ *client }

func newTable(log *slog.Logger, name string) table { return table{&client{log: log, name: name}} }

// Entry is a key's value at a revision.
type Entry struct {
	Key   string
	Value []byte
	// Revision is the number of the change in the whole table: a later change
	// of any key has a greater one.
	Revision uint64
	// Deleted says that the key has no value any more.
	Deleted bool
	// Expired means that a deleted key's time-to-live has passed, or that the reason of the
	// deletion is not known.
	Expired bool
	// ExpiresMilli is the time at which a bucket's key expires, in milliseconds since 1970, or 0.
	ExpiresMilli int64

	ttl string // as in the server's header
}

// writeOptions says how a key is written.
type writeOptions struct {
	ttl string  // seconds, "" for ever
	rev *uint64 // the revision that the key must have, nil for any
	del bool
	// within is the subject of all keys below a prefix, if rev is the last revision of these keys
	// instead of the key's own.
	within string
}

func seconds(ttl time.Duration) string {
	if ttl <= 0 {
		return ""
	}
	return strconv.Itoa(int((ttl + time.Second - 1) / time.Second))
}

func tableConfig(copies int) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              streamName,
		Description:       "the state of an Outboard pool",
		Subjects:          []string{keyPrefix + ">"},
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        MaxValue,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage,
		Replicas:          copies,
		Duplicates:        30 * time.Second,
		AllowRollup:       true,
		DenyDelete:        true,
		AllowDirect:       true,
		AllowMsgTTL:       true,
		// Watchers listen to what the leader has stored, without a consumer
		// in the servers for each of them.
		RePublish: &jetstream.RePublish{Source: keyPrefix + ">", Destination: changesPrefix + ">"},
	}
}

// createTable creates the table unless it exists.
func (t table) createTable(ctx context.Context, copies int) error {
	return t.retry(ctx, func(ctx context.Context) error {
		_, err := t.js.CreateStream(ctx, tableConfig(copies))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			return nil
		}
		return err
	})
}

// waitTable waits until the table can be read.
func (t table) waitTable(ctx context.Context) error {
	_, err := t.Get(ctx, "config/pool")
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	return err
}

// Get reads a key from the table. It returns ErrNotFound if the key has no value.
func (t table) Get(ctx context.Context, key string) (Entry, error) {
	subject, err := subjectOf(key)
	if err != nil {
		return Entry{}, err
	}
	// Without max_bytes the server would read an option of its own, which races with a reload of its
	// options (getDirectRequest of nats-server 2.15); the bound has no effect on a single message.
	request, err := json.Marshal(map[string]any{"last_by_subj": subject, "max_bytes": pageBytes})
	if err != nil {
		return Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	var entry Entry
	err = t.retry(ctx, func(ctx context.Context) error {
		msg, err := t.nc.RequestWithContext(ctx, directGet, request)
		if err != nil {
			return err
		}
		switch status := msg.Header.Get("Status"); status {
		case "":
		case "404":
			return ErrNotFound
		default:
			return fmt.Errorf("status %s: %w", status, nats.ErrNoResponders)
		}
		entry, err = decodeEntry(msg)
		return err
	})
	if err != nil {
		return Entry{}, fmt.Errorf("get %s: %w", key, err)
	}
	if entry.Deleted {
		return entry, fmt.Errorf("get %s: %w", key, ErrNotFound)
	}
	return entry, nil
}

// GetLatest reads a key from the leader, which has every acknowledged change; any copy, which may
// lag behind, answers Get. It returns ErrNotFound if the key has no value.
func (t table) GetLatest(ctx context.Context, key string) (Entry, error) {
	subject, err := subjectOf(key)
	if err != nil {
		return Entry{}, err
	}
	var found stored
	err = t.retry(ctx, func(ctx context.Context) error {
		m, err := t.leaderGet(ctx, streamName, leaderQuery{LastBySubject: subject})
		if err == nil {
			found, err = m.stored()
		}
		return err
	})
	if err == nil && found.deleted {
		err = ErrNotFound
	}
	if err != nil {
		return Entry{Key: key, Revision: found.seq, Deleted: found.deleted}, fmt.Errorf("get %s: %w", key, err)
	}
	return Entry{Key: key, Value: found.data, Revision: found.seq}, nil
}

// Put sets a key, whatever its revision. The key expires after ttl, if that is greater than zero.
func (t table) Put(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	return t.write(ctx, key, value, writeOptions{ttl: seconds(ttl)})
}

// Create sets a key that must have no value. It returns ErrConflict if the key has one.
func (t table) Create(ctx context.Context, key string, value []byte, ttl time.Duration) (uint64, error) {
	rev, err := t.Update(ctx, key, value, 0, ttl)
	if !errors.Is(err, ErrConflict) {
		return rev, err
	}
	// A deleted key has a revision until it is forgotten.
	entry, getErr := t.Get(ctx, key)
	if !errors.Is(getErr, ErrNotFound) || !entry.Deleted {
		return 0, err
	}
	return t.Update(ctx, key, value, entry.Revision, ttl)
}

// Update sets a key whose last revision must be rev, 0 for none. It returns ErrConflict if the key
// has another revision.
func (t table) Update(ctx context.Context, key string, value []byte, rev uint64, ttl time.Duration) (uint64, error) {
	return t.write(ctx, key, value, writeOptions{ttl: seconds(ttl), rev: &rev})
}

// Delete removes a key whose last revision must be rev.
func (t table) Delete(ctx context.Context, key string, rev uint64) (uint64, error) {
	return t.write(ctx, key, nil, writeOptions{ttl: seconds(tombstoneTTL), rev: &rev, del: true})
}

// UpdateWithin sets a key, or deletes it if value is nil. rev must be the last revision, 0 for
// none, of all keys that begin with prefix, which is a prefix of key that ends with a slash. It
// returns ErrConflict if they have another revision, which LastWithin returns.
func (t table) UpdateWithin(ctx context.Context, prefix, key string, value []byte, rev uint64) (uint64, error) {
	within, err := subjectBelow(prefix)
	if err != nil {
		return 0, err
	}
	o := writeOptions{rev: &rev, within: within}
	if value == nil {
		o.del, o.ttl = true, seconds(tombstoneTTL)
	}
	return t.write(ctx, key, value, o)
}

// LastWithin returns the last revision of all keys that begin with prefix, which ends with a
// slash: 0 for none.
func (t table) LastWithin(ctx context.Context, prefix string) (revision uint64, err error) {
	subject, err := subjectBelow(prefix)
	if err != nil {
		return 0, err
	}
	err = t.retry(ctx, func(ctx context.Context) error {
		m, err := t.leaderGet(ctx, streamName, leaderQuery{LastBySubject: subject})
		if revision = m.Seq; errors.Is(err, ErrNotFound) {
			revision, err = 0, nil
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("read %s: %w", prefix, err)
	}
	return revision, nil
}

// subjectOf returns the subject of a key: its words, with dots between them, below keyPrefix.
func subjectOf(key string) (string, error) {
	tokens, ok := tokensOf(key)
	if !ok {
		return "", outboard.Errorf(outboard.Invalid, "the pool's state", "key %q: it must have words with slashes between them", key)
	}
	return keyPrefix + tokens, nil
}

// subjectBelow returns the subject of all keys that begin with a prefix.
func subjectBelow(prefix string) (string, error) {
	subject, err := subjectOf(strings.TrimSuffix(prefix, "/"))
	return subject + ".>", err
}

// write stores one change. All attempts share a message id, so that an attempt whose answer
// was lost is not applied twice.
func (t table) write(ctx context.Context, key string, value []byte, c writeOptions) (uint64, error) {
	if len(value) > MaxValue/2 {
		return 0, outboard.Errorf(outboard.Exhausted, "write "+key, "%d bytes are too many", len(value))
	}
	subject, err := subjectOf(key)
	if err != nil {
		return 0, err
	}
	msg := nats.NewMsg(subject)
	msg.Data = value
	msg.Header.Set(jetstream.MsgIDHeader, t.messageID())
	if c.within != "" {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqSubjHeader, c.within)
	}
	if c.rev != nil {
		msg.Header.Set(jetstream.ExpectedLastSubjSeqHeader, strconv.FormatUint(*c.rev, 10))
	}
	if c.ttl != "" {
		msg.Header.Set(ttlHeader, c.ttl)
	}
	if c.del {
		msg.Header.Set(opHeader, opDelete)
	}
	var revision uint64
	again := false
	err = t.retry(ctx, func(ctx context.Context) error {
		a, err := t.publishOnce(ctx, msg)
		if revision = a.Seq; again && errors.Is(err, ErrConflict) {
			revision, err = t.resolveConflict(ctx, msg)
		}
		again = true
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("write %s: %w", key, err)
	}
	return revision, nil
}

// resolveConflict determines whether a conflict is with an earlier attempt of the same write,
// whose answer was lost. A server with one copy checks the revision before the message id.
func (t table) resolveConflict(ctx context.Context, msg *nats.Msg) (uint64, error) {
	m, err := t.leaderGet(ctx, streamName, leaderQuery{LastBySubject: msg.Subject})
	if errors.Is(err, ErrNotFound) {
		return 0, ErrConflict
	}
	if err != nil {
		return 0, err
	}
	return m.sequenceOf(msg.Header.Get(jetstream.MsgIDHeader))
}

// decodeEntry reads an entry from a direct get's answer or from a change.
func decodeEntry(msg *nats.Msg) (Entry, error) {
	tokens, ok := strings.CutPrefix(msg.Header.Get("Nats-Subject"), keyPrefix)
	if !ok {
		return Entry{}, fmt.Errorf("subject %q is no key", msg.Header.Get("Nats-Subject"))
	}
	key := keyOf(tokens)
	rev, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
	if err != nil {
		return Entry{}, fmt.Errorf("revision of %s: %w", key, err)
	}
	return Entry{
		Key: key, Value: msg.Data, Revision: rev, Deleted: deletion(msg.Header.Get),
		Expired: msg.Header.Get("Nats-Marker-Reason") != "", ttl: msg.Header.Get(ttlHeader),
	}, nil
}

// deletion reports, by the header of a message, whether it stands for no value. A marker of the
// server stands for an expired value.
func deletion(header func(string) string) bool {
	op := header(opHeader)
	return op == opDelete || op == "PURGE" || header("Nats-Marker-Reason") != ""
}
