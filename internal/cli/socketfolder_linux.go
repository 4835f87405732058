package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// maxSocketFolder bounds the length of a socket folder's path: a socket's address must hold the
// path and the socket's name.
const maxSocketFolder = 90

// socketFolder holds the socket of one `outboard run`. Its lock ends with the process, so that
// another run can remove the folder of a run that was killed.
type socketFolder struct {
	path string
	lock *os.File
}

// newSocketFolder creates a folder to which only the user has access.
func newSocketFolder(env *Env) (*socketFolder, error) {
	for _, base := range []string{env.getenv("XDG_RUNTIME_DIR"), os.TempDir(), "/tmp", "/var/tmp"} {
		home := filepath.Join(base, "outboard-"+strconv.Itoa(os.Geteuid()))
		if !filepath.IsAbs(base) || len(home) > maxSocketFolder-20 || ownFolder(home) != nil {
			continue
		}
		sweep(home)
		if f, err := makeLocked(home); err == nil {
			return f, nil
		}
	}
	return nil, outboard.Errorf(outboard.Other, "run", "no folder for a socket: make %s writable, or name a short one in TMPDIR", os.TempDir())
}

// ownFolder creates a private folder, or checks that an existing one belongs to the user alone.
func ownFolder(path string) error {
	if err := os.Mkdir(path, 0o700); err == nil {
		return nil
	}
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return err
	}
	if info.Mode&unix.S_IFMT != unix.S_IFDIR || info.Mode&0o077 != 0 || int(info.Uid) != os.Geteuid() {
		return fmt.Errorf("%s is accessible to other users", path)
	}
	return nil
}

// makeLocked creates a locked folder inside home. It tries again if another run removes the folder
// before it is locked.
func makeLocked(home string) (*socketFolder, error) {
	const tries = 100
	for range tries {
		path, err := os.MkdirTemp(home, "")
		if err != nil {
			return nil, err
		}
		lock, err := lockFolder(path)
		if err != nil {
			continue
		}
		if _, err := os.Lstat(path); err != nil {
			_ = lock.Close()
			continue
		}
		return &socketFolder{path: path, lock: lock}, nil
	}
	return nil, fmt.Errorf("lock a folder in %s: gave up after %d tries", home, tries)
}

func lockFolder(path string) (*os.File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// sweep removes the unlocked folders inside home.
func sweep(home string) {
	entries, err := os.ReadDir(home)
	if err != nil {
		return
	}
	for _, e := range entries {
		path := filepath.Join(home, e.Name())
		if lock, err := lockFolder(path); err == nil {
			_ = os.RemoveAll(path)
			_ = lock.Close()
		}
	}
}

func (f *socketFolder) remove() {
	_ = os.RemoveAll(f.path)
	_ = f.lock.Close()
}
