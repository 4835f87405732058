package tenant

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
)

// maxClientConns is how many connections of clients the gateway holds at most.
const maxClientConns = 20_000

// clientConns returns how many connections of clients the gateway may hold: three quarters of the
// process's descriptors, so that commands, other nodes and files find some when clients use all of
// theirs. Further clients are refused with a response.
func clientConns() int { return acceptor.Share(maxClientConns, 75) }

// checkDescriptors returns an error if the process can open no more descriptors.
func checkDescriptors() error {
	fd, err := unix.FcntlInt(uintptr(unix.Stderr), unix.F_DUPFD_CLOEXEC, 0)
	switch {
	case err == nil:
		_ = unix.Close(fd) // it is a copy
		return nil
	case !errors.Is(err, unix.EMFILE):
		return nil // the check itself is impossible here
	}
	return outboard.Errorf(outboard.Exhausted, "descriptors", "all %d of the process are in use: raise the node's limit of open files (ulimit -n, LimitNOFILE of systemd)", acceptor.Share(math.MaxInt, 100))
}
