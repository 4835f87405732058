package shared_test

import (
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/shm"
)

// floor is two bells in one page.
func floor(f *os.File) (page unsafe.Pointer, ours, theirs shm.Bell, err error) {
	page, err = unix.MmapPtr(int(f.Fd()), 0, nil, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, ours, theirs, err
	}
	word := func(at int) *atomic.Uint32 { return (*atomic.Uint32)(unsafe.Add(page, at)) }
	return page, shm.Bell{Word: word(0), Sleeper: word(64)}, shm.Bell{Word: word(128), Sleeper: word(192)}, nil
}

// bounce rings back until it has heard nothing for a while.
func bounce() int {
	_, ours, theirs, err := floor(os.NewFile(3, "page"))
	if err != nil {
		return 1
	}
	var waits shm.AdaptiveWait
	for old := uint32(0); ; old++ {
		for begin := time.Now(); theirs.Now() == old; {
			if theirs.Sleep(&waits, old, time.Second); time.Since(begin) > 5*time.Second {
				return 0 // the parent is gone
			}
		}
		ours.Ring()
	}
}

// BenchmarkFloor is the bare futex between two processes: what no call can beat.
func BenchmarkFloor(b *testing.B) {
	fd, err := unix.MemfdCreate("floor", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "floor")
	defer f.Close()
	if err := f.Truncate(4096); err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SHARED_TEST_PEER=floor")
	cmd.ExtraFiles = []*os.File{f}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() { cmd.Process.Kill(); _ = cmd.Wait() }()
	_, ours, theirs, err := floor(f)
	if err != nil {
		b.Fatal(err)
	}
	var waits shm.AdaptiveWait
	for b.Loop() {
		old := ours.Now()
		theirs.Ring()
		for ours.Now() == old {
			ours.Sleep(&waits, old, time.Second)
		}
	}
}
