package job

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/internal/train/data"
)

// streamFile lists the files of a dataset that ranks read through the node, for
// python/outboard/data.py.
const streamFile = "dataset.json"

// A streamedFile describes a file of a dataset to the ranks.
type streamedFile struct {
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// openDataset prepares to serve the files of the job's dataset to the ranks.
func (r *run) openDataset(ctx context.Context) error {
	m, err := data.Load(ctx, r.host.opts.Chunks, r.start.Data)
	if err != nil {
		return unrestored(dataDir, err)
	}
	files := make([]streamedFile, len(m.Files))
	for i, f := range m.Files {
		files[i].Name = f.Name
		for _, c := range f.Chunks {
			files[i].Size += c.Size
		}
	}
	text, err := json.Marshal(files)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.dir, streamFile), text, 0o600); err != nil {
		return err
	}
	r.dataset = data.NewReader(m, r.host.opts.Chunks)
	return nil
}

// closeDataset ends the fetches of a dataset that ranks read through the node.
func (r *run) closeDataset() {
	if r.dataset != nil {
		_ = r.dataset.Close() // It never fails.
	}
}
