package tenant

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/shm/memfd"
	"github.com/outboard-run/outboard/internal/tenant/blob"
)

// confine restricts the process to its own folder, and to reading the node's artifacts and the
// files that every program reads. Artifacts fetched from other nodes lie in its own folder. A guest
// that breaks out of the engine reaches neither other tenants' folders nor the node's, with its
// keys. The pool's sockets stay reachable. The process continues as a new program, which has the
// configuration from inheritConfig; confine returns only errors. On a machine without Landlock, which
// it logs, the process loses only its capabilities.
func (c *Config) confine(log *slog.Logger) error {
	if err := c.removeLinks(log); err != nil {
		return err
	}
	if err := c.makeDirs(); err != nil {
		return err
	}
	env, err := c.bequeath()
	if err != nil {
		return err
	}
	rules, environ := &sandbox.Rules{
		Write:   []string{c.Dir, "/dev/null"},
		Read:    append([]string{c.Artifacts}, readable...),
		Network: true,
	}, append(os.Environ(), env)
	err = sandbox.Reexecute(rules, environ)
	if errors.Is(err, sandbox.ErrUnsupported) {
		log.Warn("a tenant's process can reach the files of the node's user", "plane", "tenant", "node", c.Node, "tenant", c.Tenant, "error", err)
		err = sandbox.Reexecute(nil, environ)
	}
	return err
}

// readable are the files that every program reads.
var readable = []string{
	"/proc", "/sys", "/etc", "/run/systemd/resolve", "/usr", "/lib", "/lib64", "/dev/urandom", "/dev/random", "/dev/zero",
}

// configEnv is the environment variable with the number of the descriptor that has the configuration
// of a confined process.
const configEnv = "OUTBOARD_TENANT_CONFIG"

// bequeath opens a descriptor with the configuration for the program that this process executes, and
// returns the variable of its environment that names the descriptor.
func (c *Config) bequeath() (env string, err error) {
	f, err := memfd.NewImmutable("tenant-config", func(f *os.File) error { return json.NewEncoder(f).Encode(c) })
	if err != nil {
		return "", err
	}
	defer f.Close()
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD, 0) // which stays open in the new program
	return fmt.Sprintf("%s=%d", configEnv, fd), err
}

// inheritConfig returns the configuration of a process that has confined itself, nil if it has not.
func inheritConfig() (*Config, error) {
	text, ok := os.LookupEnv(configEnv)
	if !ok {
		return nil, nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configEnv, err)
	}
	f := os.NewFile(uintptr(fd), "tenant-config")
	if f == nil {
		return nil, fmt.Errorf("%s: no descriptor %d", configEnv, fd)
	}
	defer f.Close()
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configEnv, err)
	}
	c := new(Config)
	err = json.NewDecoder(io.NewSectionReader(f, 0, size)).Decode(c)
	return c, errors.Join(err, os.Unsetenv(configEnv))
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
