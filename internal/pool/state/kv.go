package state

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

const (
	commitPrefix = "outboard.commit."
	// markerTTL is how long it is remembered which commit of a writer was its last.
	markerTTL = time.Hour

	// MaxCommit is how many changes one commit has at most: JetStream takes
	// 1,000 messages at once, and one of them is the writer's mark.
	MaxCommit = 999
)

// A KV is the stream of a NATS key-value bucket with a history of one, whose
// writers commit many changes at once behind a fence. Package bucket is made of it.
// All methods may be called by several goroutines.
type KV struct {
	s      *State
	stream string
	keys   string // the subjects' prefix
	marks  string
	get    string // where direct reads are asked for
}

// A KVChange is one key's new value.
type KVChange struct {
	Key     string
	Value   []byte
	Deleted bool
}

// OpenKV opens a bucket of that name beside the pool's table, and makes it when
// it is not there, with as many copies as the table has.
func (s *State) OpenKV(ctx context.Context, name string) (*KV, error) {
	if !strings.HasPrefix(name, "outboard-") || !wordOf(name) {
		return nil, outboard.Errorf(outboard.Invalid, "open bucket", "%q: the name of a bucket's stream", name)
	}
	stream := "KV_" + name
	k := &KV{
		s: s, stream: stream, keys: "$KV." + name + ".", marks: commitPrefix + name + ".",
		get: "$JS.API.DIRECT.GET." + stream,
	}
	if err := s.ensureStream(ctx, k.config()); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	return k, nil
}

func (k *KV) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               k.stream,
		Description:        "a bucket of an Outboard app",
		Subjects:           []string{k.keys + ">", k.marks + ">"},
		MaxMsgsPerSubject:  1,
		MaxMsgSize:         MaxValue,
		Discard:            jetstream.DiscardNew,
		Storage:            jetstream.FileStorage,
		Duplicates:         30 * time.Second,
		AllowRollup:        true,
		DenyDelete:         true,
		AllowDirect:        true,
		AllowMsgTTL:        true,
		AllowAtomicPublish: true,
	}
}

// Commit makes all changes or none, when the bucket's last revision is after. The
// changes' revisions are the numbers that follow it, in order; Commit returns the
// last revision, which is the writer's mark's. It returns ErrConflict when
// somebody else has committed since.
//
// writer is a word of its own for each open bucket, number a different one for
// each commit of the writer: they tell a commit whose answer was lost.
func (k *KV) Commit(ctx context.Context, writer string, number, after uint64, changes []KVChange) (uint64, error) {
	id := writer + "." + strconv.FormatUint(number, 10)
	msgs := k.messages(writer, id, after, changes)
	var last uint64
	err := retry(ctx, func(ctx context.Context) error {
		var err error
		last, err = k.s.publish(ctx, id, msgs)
		if errors.Is(err, ErrConflict) {
			last, err = k.committed(ctx, writer, id)
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("commit to %s: %w", k.stream, err)
	}
	return last, nil
}

func (k *KV) messages(writer, id string, after uint64, changes []KVChange) []*nats.Msg {
	msgs := make([]*nats.Msg, 0, len(changes)+1)
	for _, c := range changes {
		m := &nats.Msg{Subject: k.keys + c.Key, Data: c.Value, Header: make(nats.Header, 4)}
		if c.Deleted {
			m.Header[opHeader] = []string{opDelete}
			m.Header[ttlHeader] = []string{seconds(tombstoneTTL)}
		}
		msgs = append(msgs, m)
	}
	mark := &nats.Msg{Subject: k.marks + writer, Data: []byte(id), Header: make(nats.Header, 4)}
	mark.Header[ttlHeader] = []string{seconds(markerTTL)}
	msgs = append(msgs, mark)
	msgs[0].Header[jetstream.ExpectedLastSeqHeader] = []string{strconv.FormatUint(after, 10)}
	return msgs
}

// committed finds out whether a conflict is with our own earlier attempt: then
// the writer's mark, which nobody else writes, says so.
func (k *KV) committed(ctx context.Context, writer, id string) (uint64, error) {
	m, err := k.s.leaderGet(ctx, k.stream, leaderQuery{LastBySubject: k.marks + writer})
	switch {
	case errors.Is(err, ErrNotFound):
		return 0, ErrConflict
	case err != nil:
		return 0, err
	case string(m.Data) != id:
		return 0, ErrConflict
	}
	return m.Seq, nil
}

// Current reports whether the bucket has no change after that revision.
func (k *KV) Current(ctx context.Context, revision uint64) (bool, error) {
	current := false
	err := retry(ctx, func(ctx context.Context) error {
		_, err := k.s.leaderGet(ctx, k.stream, leaderQuery{Seq: revision + 1, NextBySubject: ">"})
		current = errors.Is(err, ErrNotFound)
		if current {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("look at %s: %w", k.stream, err)
	}
	return current, nil
}

// Since tells f every key that was changed after a revision, in order, and
// returns the bucket's last revision then. Tombstones are gone after an hour: who
// has not looked for longer must start at 0.
func (k *KV) Since(ctx context.Context, revision uint64, f func(Entry)) (uint64, error) {
	var err error
	for done := false; !done && err == nil; {
		revision, done, err = k.follow(ctx, revision, f)
	}
	if err != nil {
		return revision, fmt.Errorf("read %s: %w", k.stream, err)
	}
	return revision, nil
}

// follow reads on as far as a copy knows, and asks the leader whether that is
// all. What the last numbers stood for may have expired.
func (k *KV) follow(ctx context.Context, revision uint64, f func(Entry)) (last uint64, done bool, err error) {
	last, err = k.last(ctx)
	if err != nil {
		return revision, false, err
	}
	if revision, err = k.pages(ctx, revision, f); err != nil || revision >= last {
		return revision, true, err
	}
	current, err := k.Current(ctx, revision)
	if !current {
		return revision, false, err
	}
	return last, true, nil
}

func (k *KV) last(ctx context.Context) (last uint64, err error) {
	err = retry(ctx, func(ctx context.Context) error {
		stream, err := k.s.js.Stream(ctx, k.stream)
		if err == nil {
			last = stream.CachedInfo().State.LastSeq
		}
		return err
	})
	return last, err
}

func (k *KV) pages(ctx context.Context, revision uint64, f func(Entry)) (uint64, error) {
	for more := true; more; {
		var page []Entry
		err := retry(ctx, func(ctx context.Context) (err error) {
			page, more, err = k.s.pageOf(ctx, k.get, ">", k.entry, revision+1)
			return err
		})
		if err != nil {
			return revision, err
		}
		for _, e := range page {
			revision = e.Revision
			if e.Key != "" {
				f(e)
			}
		}
		more = more && len(page) > 0
	}
	return revision, nil
}

// entry reads a message of the stream. A writer's mark has no key.
func (k *KV) entry(msg *nats.Msg) (Entry, error) {
	subject := msg.Header.Get("Nats-Subject")
	if strings.HasPrefix(subject, k.marks) {
		rev, err := strconv.ParseUint(msg.Header.Get("Nats-Sequence"), 10, 64)
		return Entry{Revision: rev}, err
	}
	return decodeEntryOf(msg, k.keys)
}

// leaderQuery asks a stream's leader for one message.
type leaderQuery struct {
	Seq           uint64 `json:"seq,omitempty"`
	LastBySubject string `json:"last_by_subj,omitempty"`
	NextBySubject string `json:"next_by_subj,omitempty"`
}

// leaderMsg is a leader's answer.
type leaderMsg struct {
	Subject string    `json:"subject"`
	Seq     uint64    `json:"seq"`
	Header  []byte    `json:"hdrs"`
	Data    []byte    `json:"data"`
	Time    time.Time `json:"time"`
}

// leaderGet reads one message from the stream's leader, which knows all that
// was acknowledged, once. It returns ErrNotFound when there is none.
func (s *State) leaderGet(ctx context.Context, stream string, q leaderQuery) (leaderMsg, error) {
	request, err := json.Marshal(q)
	if err != nil {
		return leaderMsg{}, err
	}
	answer, err := s.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+stream, request)
	if err != nil {
		return leaderMsg{}, err
	}
	var out struct {
		Error   *jetstream.APIError `json:"error"`
		Message leaderMsg           `json:"message"`
	}
	if err := json.Unmarshal(answer.Data, &out); err != nil {
		return leaderMsg{}, fmt.Errorf("the server's answer: %w", err)
	}
	switch {
	case out.Error == nil:
		return out.Message, nil
	case out.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return leaderMsg{}, ErrNotFound
	}
	return leaderMsg{}, out.Error
}
