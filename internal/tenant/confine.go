package tenant

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/internal/confine"
	"github.com/outboard-run/outboard/internal/tenant/blob"
)

// confine takes away what a guest that breaks out of the engine could reach: other
// tenants' folders and the node's, where its keys are. The sockets stay: they are the
// process's way to the pool.
func (c *Config) confine() error {
	// Where a folder is a link, what it leads to is allowed.
	compiled, err := filepath.EvalSymlinks(c.compiledDir())
	if err != nil {
		return err
	}
	err = confine.Process(confine.Rules{
		Write:   []string{c.Dir, compiled, c.Artifacts, "/dev"},
		Read:    []string{"/proc", "/sys", "/etc", "/usr", "/lib", "/lib64", c.Creds},
		Network: true,
	})
	if errors.Is(err, confine.ErrMissing) {
		return &gapError{err}
	}
	return err
}

// A gapError is what this kernel, or this program, can't do.
type gapError struct{ error }

func (c *Config) compiledDir() string { return filepath.Join(c.Dir, "compiled") }

// makeDirs makes the folders that the process has.
func (c *Config) makeDirs() error {
	for _, dir := range []string{filepath.Join(c.Dir, blob.ValuesDir), filepath.Join(c.Dir, blob.OwnersDir), c.compiledDir(), c.Artifacts} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}
