package job

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/train/data"
)

// otherChunks are the chunks of another node, which counts what is read.
type otherChunks struct {
	all  map[string][]byte
	read map[string]int
}

func (c *otherChunks) Has(context.Context, string) (bool, error) { return false, nil }
func (c *otherChunks) Put(context.Context, string, []byte) error { return nil }
func (c *otherChunks) Get(_ context.Context, d string) ([]byte, error) {
	c.read[d]++
	return c.all[d], nil
}

// A node of a job that names something else as a profile, however large, has nothing of it copied.
func TestOnlyProfilesAreCopied(t *testing.T) {
	part := []byte("part")
	chunk := data.Chunk{Digest: artifact.Digest(part), Size: int64(len(part))}
	large := data.Chunk{Digest: artifact.Digest([]byte("large")), Size: 4 << 20}
	for name, files := range map[string][]data.File{
		"another file": {{Name: "other", Chunks: []data.Chunk{chunk}}},
		"two files":    {{Name: profileFile, Chunks: []data.Chunk{chunk}}, {Name: "more", Chunks: []data.Chunk{chunk}}},
		"too large":    {{Name: profileFile, Chunks: slices.Repeat([]data.Chunk{large}, 1000)}},
	} {
		manifest, err := json.Marshal(&data.Manifest{Format: "outboard-data/1", Files: files})
		if err != nil {
			t.Fatal(err)
		}
		digest := artifact.Digest(manifest)
		chunks := &otherChunks{all: map[string][]byte{digest: manifest, chunk.Digest: part}, read: map[string]int{}}
		m := &Manager{opts: Options{Chunks: chunks, Dir: t.TempDir()}}
		if err := m.fetchProfile(t.Context(), "job-a", &profiled{Digest: digest}); outboard.KindOf(err) != outboard.Protocol || !strings.Contains(err.Error(), "no profile") {
			t.Errorf("%s: %v", name, err)
		}
		if read := slices.Collect(maps.Keys(chunks.read)); !slices.Equal(read, []string{digest}) {
			t.Errorf("%s: %v were read, want the manifest alone", name, read)
		}
	}
}
