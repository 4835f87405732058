package job

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/train/data"
)

// Discard deletes those of some chunks from a node that nothing needs. Chunks that were written, or
// asked for, after usedUntil stay.
type Discard func(ctx context.Context, digests []string, usedUntil time.Time) error

const (
	// supersededLimit is how long a checkpoint stays after the next one counts: a job may save
	// gigabytes each minute, but another writer may rely on chunks that it has found meanwhile.
	supersededLimit = 10 * time.Minute
	// maxSuperseded bounds the checkpoints that a trail remembers; the node collects the others later.
	maxSuperseded = 1024
)

// A checkpointTrail discards the checkpoints of an attempt that later ones supersede. The one that an
// attempt starts from stays, since nodes may still restore it.
type checkpointTrail struct {
	mu    sync.Mutex
	saved []keptCheckpoint // in this order; the last one counts
}

// A keptCheckpoint is a checkpoint that counted, and when this node had used it for the last time.
type keptCheckpoint struct {
	digest string
	at     time.Time
}

// advance records that a checkpoint counts from now on, and discards old ones. After an error the node
// collects their chunks later.
func (t *checkpointTrail) advance(ctx context.Context, digest string, now time.Time, chunks data.Chunks, discard Discard) (err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.saved = append(t.saved, keptCheckpoint{digest, now})
	for discard != nil && len(t.saved) > 1 && now.Sub(t.saved[1].at) >= supersededLimit {
		err = errors.Join(err, discardCheckpoint(ctx, t.saved[0], chunks, discard))
		t.saved = t.saved[1:]
	}
	t.saved = t.saved[max(0, len(t.saved)-maxSuperseded):]
	return err
}

func discardCheckpoint(ctx context.Context, s keptCheckpoint, chunks data.Chunks, discard Discard) error {
	manifest, err := data.Load(ctx, chunks, s.digest)
	if err != nil {
		return err
	}
	digests := map[string]bool{s.digest: true}
	manifest.Digests(digests)
	return discard(ctx, slices.Collect(maps.Keys(digests)), s.at)
}
