package job

import (
	"context"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/data"
)

// noChunks has no chunk.
type noChunks struct{ data.Chunks }

func (noChunks) Get(context.Context, string) ([]byte, error) {
	return nil, outboard.Errorf(outboard.NotFound, "", "no other node has it")
}

// A checkpoint or a dataset that is on no node is named, with what to do.
func TestMissingCheckpointsAndDatasets(t *testing.T) {
	for want, s := range map[string]start{
		"restore the job's checkpoint: read the manifest: no other node has it; start the nodes that have it": {Checkpoint: "sha256:1"},
		"restore the job's data: read the manifest: no other node has it; push the dataset again":             {Data: "sha256:1"},
		"the manifest: no other node has it; push the dataset again, and then":                                {Data: "sha256:1", Stream: true},
	} {
		r := &run{start: &s, dir: t.TempDir(), host: NewHost(HostOptions{Chunks: noChunks{}, Python: func(string) error { return nil }})}
		if err := r.prepareFiles(t.Context()); outboard.KindOf(err) != outboard.NotFound || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want an error with %q", err, want)
		}
	}
}
