package datadir

import (
	"os"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// Check refuses a folder that another user owns or may write to: a user who can replace its files
// chooses what the node, and the programs that use it, execute. It follows links, and checks
// the folder that path leads to.
func Check(path string) error {
	owner, err := Owner(path)
	if uid := uint32(os.Geteuid()); err == nil && owner != uid && owner != 0 {
		return outboard.Errorf(outboard.Denied, "", "%s belongs to user %d, not to user %d: name another one with --data", path, owner, uid)
	}
	return err
}

// Owner returns the user who owns a folder, and refuses one that others may write to, too. It
// follows links.
func Owner(path string) (uid uint32, err error) {
	var info unix.Stat_t
	if err := unix.Stat(path, &info); err != nil {
		return 0, &os.PathError{Op: "stat", Path: path, Err: err}
	}
	switch {
	case info.Mode&unix.S_IFMT != unix.S_IFDIR:
		return 0, outboard.Errorf(outboard.Invalid, "", "%s is no folder: name another one with --data", path)
	case info.Mode&0o022 != 0:
		return 0, outboard.Errorf(outboard.Denied, "", "%s may be written by other users (mode %04o): see what is in it, then `chmod go-w` it, or name another one with --data", path, info.Mode&0o7777)
	}
	return info.Uid, nil
}
