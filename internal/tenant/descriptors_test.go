package tenant

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// The gateway leaves descriptors to the rest of the process, and a process without any says so.
func TestDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	with := func(limit uint64, f func()) {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: limit, Max: old.Max}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
				t.Fatal(err)
			}
		}()
		f()
	}
	var conns int
	with(400, func() { conns = clientConns() })
	if conns != 300 {
		t.Errorf("%d connections with 400 descriptors", conns)
	}
	var err error
	with(1, func() { err = checkDescriptors() })
	if outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("without descriptors: %v", err)
	}
	if err := checkDescriptors(); err != nil {
		t.Error(err)
	}
}
