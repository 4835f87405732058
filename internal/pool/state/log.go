package state

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/outboard-run/outboard"
)

const (
	logStreamPrefix  = "outboard_"
	logSubjectPrefix = "outboard.log."
)

// LogOptions configures a log.
type LogOptions struct {
	// MaxAge is how long a record is kept, 0 for ever.
	MaxAge time.Duration
}

// A Log keeps a history of records for each of its keys. Keys are words with
// slashes between them, "tenant/app/id".
// All methods may be called by several goroutines.
type Log struct {
	s      *State
	name   string
	stream string
	prefix string // of its subjects
}

// A Record is one record of a key's history.
type Record struct {
	Key string
	// Seq grows along the history. Records that were appended together may
	// share one.
	Seq  uint64
	Data []byte
	Time time.Time
}

// OpenLog opens a log of the pool, and creates it if it does not exist, with as many copies as the
// table has.
func (s *State) OpenLog(ctx context.Context, name string, o LogOptions) (*Log, error) {
	if !isWord(name) {
		return nil, outboard.Errorf(outboard.Invalid, "open log", "%q: a name has letters, digits, \"-\" and \"_\"", name)
	}
	l := newLog(s, name)
	if err := s.ensureStream(ctx, l.config(o)); err != nil {
		return nil, fmt.Errorf("open log %s: %w", name, err)
	}
	return l, nil
}

func newLog(s *State, name string) *Log {
	return &Log{s: s, name: name, stream: logStreamPrefix + name, prefix: logSubjectPrefix + name + "."}
}

func (l *Log) config(o LogOptions) jetstream.StreamConfig {
	cfg := jetstream.StreamConfig{
		Name:               l.stream,
		Description:        "a log of an Outboard pool",
		Subjects:           []string{l.prefix + ">"},
		MaxAge:             o.MaxAge,
		MaxMsgSize:         MaxValue,
		Discard:            jetstream.DiscardNew,
		Storage:            jetstream.FileStorage,
		Duplicates:         dedupeWindow,
		AllowDirect:        true,
		AllowAtomicPublish: true,
	}
	if o.MaxAge > 0 {
		cfg.Duplicates = min(cfg.Duplicates, o.MaxAge)
	}
	return cfg
}

// ensureStream creates a stream unless it exists, with as many copies as the table has.
func (c *client) ensureStream(ctx context.Context, cfg jetstream.StreamConfig) error {
	return c.retry(ctx, func(ctx context.Context) error {
		table, err := c.js.Stream(ctx, streamName)
		if err != nil {
			return err
		}
		cfg.Replicas = table.CachedInfo().Config.Replicas
		stream, err := c.js.Stream(ctx, cfg.Name)
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			_, err = c.js.CreateStream(ctx, cfg)
			if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
				err = errInProcess // until the cluster's leader knows it, too
			}
			return err
		}
		if err != nil {
			return err
		}
		has := stream.CachedInfo().Config
		if has.MaxAge == cfg.MaxAge && has.Replicas == cfg.Replicas {
			return nil
		}
		has.MaxAge, has.Replicas, has.Duplicates = cfg.MaxAge, cfg.Replicas, cfg.Duplicates
		_, err = c.js.UpdateStream(ctx, has)
		return err
	})
}

// Append adds records to key's history, all or none, if the key's last record has the sequence
// after, 0 for none. It returns the sequence of the last record that it added, or ErrConflict if
// the history has later records.
func (l *Log) Append(ctx context.Context, key string, after uint64, data ...[]byte) (uint64, error) {
	subject, err := l.subject(key)
	if err != nil {
		return 0, err
	}
	if len(data) == 0 {
		return after, nil
	}
	id := nuid.Next()
	msgs, err := l.messages(subject, id, after, data)
	if err != nil {
		return 0, err
	}
	var seq uint64
	err = l.s.retry(ctx, func(ctx context.Context) error {
		a, err := l.s.publishBatchOnce(ctx, id, msgs)
		if seq = a.Seq; errors.Is(err, ErrConflict) {
			seq, err = l.resolveConflict(ctx, subject, after, id, len(msgs))
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("append to %s: %w", key, err)
	}
	return seq, nil
}

// messages packs the records into as few messages as possible: a batch of several messages costs
// twenty times as much as one message.
func (l *Log) messages(subject, id string, after uint64, data [][]byte) ([]*nats.Msg, error) {
	var msgs []*nats.Msg
	for len(data) > 0 {
		n, size := 0, 0
		for n < len(data) && n < packRecords && (n == 0 || size+len(data[n]) <= packBytes) {
			size += len(data[n])
			n++
		}
		if size > packBytes {
			return nil, outboard.Errorf(outboard.Exhausted, "append to "+subject, "a record of %d bytes is too large", size)
		}
		msgs = append(msgs, pack(subject, data[:n], size))
		data = data[n:]
	}
	msgs[0].Header[jetstream.MsgIDHeader] = []string{id}
	msgs[0].Header[jetstream.ExpectedLastSubjSeqHeader] = []string{strconv.FormatUint(after, 10)}
	return msgs, nil
}

// resolveConflict determines whether a conflict is with an earlier attempt of the same append,
// whose answer was lost: then the first message after the expected one carries its id, and the
// other messages follow.
func (l *Log) resolveConflict(ctx context.Context, subject string, after uint64, id string, n int) (uint64, error) {
	m, err := l.s.leaderGet(ctx, l.stream, leaderQuery{Seq: after + 1, NextBySubject: subject})
	if errors.Is(err, ErrNotFound) {
		return 0, ErrConflict
	}
	if err != nil {
		return 0, err
	}
	seq, err := m.sequenceOf(id)
	return seq + uint64(n) - 1, err
}

// Read returns key's whole history in order: all records that were acknowledged before the call. A
// key without a history has none.
func (l *Log) Read(ctx context.Context, key string) ([]Record, error) {
	subject, err := l.subject(key)
	if err != nil {
		return nil, err
	}
	var records []Record
	err = l.s.retry(ctx, func(ctx context.Context) error {
		records, err = l.read(ctx, key, subject)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", key, err)
	}
	return records, nil
}

func (l *Log) read(ctx context.Context, key, subject string) ([]Record, error) {
	last, err := l.s.leaderGet(ctx, l.stream, leaderQuery{LastBySubject: subject})
	if errors.Is(err, ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var records []Record
	var seq uint64
	err = l.s.pages(ctx, directGetPrefix+l.stream, subject, func(m *nats.Msg) (uint64, error) {
		parts, err := unpack(key, m)
		if err == nil {
			seq, records = parts[0].Seq, append(records, parts...)
		}
		return seq, err
	})
	if err == nil && seq < last.Seq {
		// The copy that answered is behind, or the history was purged meanwhile.
		err = errInProcess
	}
	return records, err
}

// Keys returns the keys that have records and begin with prefix, which is "" or
// ends with a slash, in no order.
func (l *Log) Keys(ctx context.Context, prefix string) ([]string, error) {
	heads, err := l.Heads(ctx, prefix)
	return slices.Collect(maps.Keys(heads)), err
}

// Heads returns the keys that have records and begin with prefix, which is "" or ends with a slash,
// each with the number of its appends: while the number is the same, so are the records, unless the
// key was purged and begun anew.
func (l *Log) Heads(ctx context.Context, prefix string) (map[string]uint64, error) {
	filter, err := l.filter(prefix)
	if err != nil {
		return nil, err
	}
	var heads map[string]uint64
	err = l.s.retry(ctx, func(ctx context.Context) error {
		stream, err := l.s.js.Stream(ctx, l.stream)
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx, jetstream.WithSubjectFilter(filter))
		if err != nil {
			return err
		}
		heads = make(map[string]uint64, len(info.State.Subjects))
		for subject, count := range info.State.Subjects {
			heads[keyOf(strings.TrimPrefix(subject, l.prefix))] = count
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("keys of log %s: %w", l.name, err)
	}
	return heads, nil
}

// Scan calls f with all records whose keys begin with prefix, which is "" or ends with a
// slash, in the order in which they were appended: all records of one append at once. It is
// much faster than reading many keys one by one, but records acknowledged shortly before may
// be missing: Heads returns the number of appends.
func (l *Log) Scan(ctx context.Context, prefix string, f func([]Record) error) error {
	filter, err := l.filter(prefix)
	if err != nil {
		return err
	}
	err = l.s.pages(ctx, directGetPrefix+l.stream, filter, func(m *nats.Msg) (uint64, error) {
		parts, err := unpack(keyOf(strings.TrimPrefix(m.Header.Get("Nats-Subject"), l.prefix)), m)
		if err != nil {
			return 0, err
		}
		return parts[0].Seq, f(parts)
	})
	if err != nil {
		return fmt.Errorf("scan log %s: %w", l.name, err)
	}
	return nil
}

// filter returns the subject of all keys that begin with prefix.
func (l *Log) filter(prefix string) (string, error) {
	if prefix == "" {
		return l.prefix + ">", nil
	}
	subject, err := l.subject(strings.TrimSuffix(prefix, "/"))
	return subject + ".>", err
}

// Purge removes key's whole history.
func (l *Log) Purge(ctx context.Context, key string) error {
	subject, err := l.subject(key)
	if err != nil {
		return err
	}
	err = l.s.purge(ctx, l.stream, subject, 0)
	if err != nil {
		return fmt.Errorf("purge %s: %w", key, err)
	}
	return nil
}

func (l *Log) subject(key string) (string, error) {
	tokens, ok := tokensOf(key)
	if !ok {
		return "", outboard.Errorf(outboard.Invalid, "log "+l.name, "key %q: it must have words with slashes between them", key)
	}
	return l.prefix + tokens, nil
}
