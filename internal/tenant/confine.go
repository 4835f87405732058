package tenant

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/tenant/blob"
)

// confine restricts the process to its own folder, and to reading the node's artifacts and the
// files that every program reads. Artifacts fetched from other nodes lie in its own folder. A guest
// that breaks out of the engine reaches neither other tenants' folders nor the node's, with its
// keys. The pool's sockets stay reachable.
func (c *Config) confine() error {
	err := sandbox.RestrictProcess(sandbox.Rules{
		Write:   []string{c.Dir, "/dev/null"},
		Read:    []string{c.Artifacts, "/proc", "/sys", "/etc", "/usr", "/lib", "/lib64", "/dev/urandom", "/dev/random", "/dev/zero", c.Creds},
		Network: true,
	})
	if errors.Is(err, sandbox.ErrUnsupported) {
		return &gapError{err}
	}
	return err
}

// removeLinks removes each entry that has the name of one of the process's folders and is no
// folder: a guest that broke out may have planted a link there, so that the next process, which
// starts unconfined, would gain access to the link's target. The folders are never links.
func (c *Config) removeLinks(log *slog.Logger) error {
	for _, dir := range c.dirs() {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		if err == nil {
			log.Error("a tenant's folder was replaced by something else, which is removed: a guest may have broken out", "tenant", c.Tenant, "path", dir, "mode", info.Mode().String())
			err = os.Remove(dir)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// gapError is the error of a confinement that this kernel, or this program, does not support.
type gapError struct{ error }

func (c *Config) compiledDir() string { return filepath.Join(c.Dir, "compiled") }

// ownArtifacts returns the folder of the artifacts that the process has fetched from other nodes.
func (c *Config) ownArtifacts() string { return filepath.Join(c.Dir, "artifacts") }

// dirs returns the folders that belong to the process.
func (c *Config) dirs() []string {
	return []string{c.Dir, filepath.Join(c.Dir, blob.ValuesDir), filepath.Join(c.Dir, blob.OwnersDir), c.compiledDir(), c.ownArtifacts()}
}

// makeDirs creates the folders that the process uses.
func (c *Config) makeDirs() error {
	for _, dir := range append(c.dirs(), c.Artifacts) {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	return nil
}
