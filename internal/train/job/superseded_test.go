package job

import (
	"context"
	"slices"
	"testing"
	"time"
)

// The checkpoints of a long job are deleted some minutes after later ones count, those that the last
// ones need excepted: the node decides that by the time.
func TestSupersededCheckpointsAreDiscarded(t *testing.T) {
	var (
		chunks    = &memoryChunks{}
		trail     checkpointTrail
		discarded []string
		began     = time.Unix(1_000_000, 0)
	)
	at := func(minute int) time.Time { return began.Add(time.Duration(minute) * time.Minute) }
	save := func(minute int, text string) string {
		digest := chunks.save(t, checkpointFile, text)
		err := trail.advance(t.Context(), digest, at(minute), chunks, func(_ context.Context, digests []string, usedUntil time.Time) error {
			if len(digests) != 2 || usedUntil.After(at(minute).Add(-supersededLimit)) {
				t.Errorf("%d chunks are discarded that were used until %v", len(digests), usedUntil)
			}
			discarded = append(discarded, digests...)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return digest
	}
	first := save(0, "a")
	second := save(4, "b")
	third := save(13, "c")
	if len(discarded) > 0 {
		t.Errorf("%v are discarded early", discarded)
	}
	last := save(14, "d") // The first one has been superseded for ten minutes.
	if !slices.Contains(discarded, first) || slices.Contains(discarded, second) {
		t.Errorf("%v are discarded, want the first checkpoint", discarded)
	}
	if save(60, "e"); !slices.Contains(discarded, second) || !slices.Contains(discarded, third) || slices.Contains(discarded, last) {
		t.Errorf("%v are discarded, want all that later ones have superseded for ten minutes", discarded)
	}
}
