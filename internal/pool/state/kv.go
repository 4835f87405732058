package state

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
)

const (
	commitPrefix = "outboard.commit."

	// MaxCommit bounds the keys and values of one commit, in bytes.
	MaxCommit = MaxValue / 2
)

// A KV is the stream of a NATS key-value bucket with a history of one, whose
// writers commit many changes at once. Package bucket is built on it.
// Its methods are safe for concurrent use.
//
// A commit consists of a record of all its changes, on a subject of the writer's own, and
// a message for each key. The record is stored by compare-and-swap on the stream's last
// revision; each message is stored only directly after its predecessor. The commit
// is complete when its record is stored. The messages follow without delaying the writer; if
// the writer dies before it has written all of them, the next reader of the stream writes the
// rest (log replay). Thus a commit is atomic, as a JetStream batch is, which takes several
// files and three syncs to disk for each batch of a stream with one copy.
type KV struct {
	s      *State
	stream string
	keys   string // the prefix of the keys' subjects
	marks  string // the prefix of the subjects of writers' records
	get    string // the subject of direct gets
}

// OpenKV opens the bucket with the given name, and creates it if it does not exist, with as
// many replicas as the pool's table has.
func (s *State) OpenKV(ctx context.Context, name string) (*KV, error) {
	if !strings.HasPrefix(name, "outboard-") || !isWord(name) {
		return nil, outboard.Errorf(outboard.Invalid, "open bucket", "%q: the name of a bucket's stream", name)
	}
	k := newKV(s, name)
	if err := s.ensureStream(ctx, k.config()); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	return k, nil
}

func newKV(s *State, name string) *KV {
	stream := "KV_" + name
	return &KV{
		s: s, stream: stream, keys: "$KV." + name + ".", marks: commitPrefix + name + ".",
		get: directGetPrefix + stream,
	}
}

func (k *KV) config() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              k.stream,
		Description:       "a bucket of an Outboard app",
		Subjects:          []string{k.keys + ">", k.marks + ">"},
		MaxMsgsPerSubject: 1,
		MaxMsgSize:        MaxValue,
		Discard:           jetstream.DiscardNew,
		Storage:           jetstream.FileStorage,
		Duplicates:        dedupeWindow,
		AllowRollup:       true,
		DenyDelete:        true,
		AllowDirect:       true,
		AllowMsgTTL:       true,
	}
}

// Current reports whether the bucket has no change after that revision.
func (k *KV) Current(ctx context.Context, revision uint64) (bool, error) {
	err := k.s.retry(ctx, func(ctx context.Context) error {
		_, err := k.s.leaderGet(ctx, k.stream, leaderQuery{Seq: revision + 1, NextBySubject: ">"})
		return err
	})
	switch {
	case errors.Is(err, ErrNotFound):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("look at %s: %w", k.stream, err)
	}
	return false, nil
}
