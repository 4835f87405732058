// Package python carries the Python package outboard, the back end of torch.distributed, so that
// ranks need not install it.
package python

import (
	"embed"
	"io/fs"
	"os"
	"path/filepath"
)

//go:embed outboard/*.py
var files embed.FS

// Extract writes the package below dir, which PYTHONPATH then names.
func Extract(dir string) error {
	return fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, path)
		if e.IsDir() {
			return os.MkdirAll(to, 0o755)
		}
		text, err := files.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, text, 0o644)
	})
}
