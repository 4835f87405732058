package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// Root's commands execute nothing that the user of a node's service may write, and write nothing to
// that user's folder.
func TestRootKeepsItsOwnFiles(t *testing.T) {
	need.Root(t)
	tests := map[string]struct {
		owner int
		mode  os.FileMode
		want  string // "": refused
	}{
		"root's node":                 {0, 0o700, "data"},
		"a service's node":            {4711, 0o700, "root"},
		"a folder that others write":  {4711, 0o770, ""},
		"root's that others write to": {0, 0o777, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			env := &Env{RootFolder: filepath.Join(dir, "root")}
			env.config.data = filepath.Join(dir, "data")
			if err := os.Mkdir(env.config.data, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Chown(env.config.data, test.owner, test.owner); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(env.config.data, test.mode); err != nil {
				t.Fatal(err)
			}
			switch err := env.prepareFolders(); {
			case (err != nil) != (test.want == ""):
				t.Errorf("got %v", err)
			case err == nil && env.commandFolder() != filepath.Join(dir, test.want):
				t.Errorf("got %s, want %s", env.commandFolder(), test.want)
			}
		})
	}
}
