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
// writers commit many changes at once. Package bucket is made of it.
// All methods may be called by several goroutines.
//
// A commit is first a record of all its changes, on a subject of the writer's own,
// which is stored only when nobody has written since the writer looked; then a
// message for each key, each of which is stored only right after the one before
// it. The record is the commit, and the chain follows it when nobody waits for it:
// should it break, whoever reads the stream next writes the rest. So all changes
// happen or none, as in a JetStream batch, which takes several files and three
// syncs to disk for each batch of a stream with one copy.
type KV struct {
	s      *State
	stream string
	keys   string // the subjects' prefix
	marks  string // that of the writers' records
	get    string // where reads are asked for
}

// OpenKV opens a bucket of that name beside the pool's table, and makes it when
// it is not there, with as many copies as the table has.
func (s *State) OpenKV(ctx context.Context, name string) (*KV, error) {
	if !strings.HasPrefix(name, "outboard-") || !isWord(name) {
		return nil, outboard.Errorf(outboard.Invalid, "open bucket", "%q: the name of a bucket's stream", name)
	}
	stream := "KV_" + name
	k := &KV{
		s: s, stream: stream, keys: "$KV." + name + ".", marks: commitPrefix + name + ".",
		get: directGetPrefix + stream,
	}
	if err := s.ensureStream(ctx, k.config()); err != nil {
		return nil, fmt.Errorf("open bucket %s: %w", name, err)
	}
	return k, nil
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
