package worker

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/control"
)

// TestReach runs a child that is confined as a worker is, and has it try what a
// hostile kernel would: the local sockets of its user, the memory of its node,
// and leaving its process group.
func TestReach(t *testing.T) {
	if dir := os.Getenv("OUTBOARD_TEST_REACH"); dir != "" {
		runtime.LockOSThread() // what confines is this thread's
		reach(t, dir)
		return
	}
	dir := t.TempDir()
	for _, sub := range []string{"cache", "tmp"} {
		if err := os.Mkdir(dir+"/"+sub, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "unix", dir+"/tmp/socket")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestReach$", "-test.v")
	cmd.Env = append(os.Environ(), "OUTBOARD_TEST_REACH="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func reach(t *testing.T, dir string) {
	missing, err := restrict(control.Config{CacheDir: dir + "/cache", TmpDir: dir + "/tmp"})
	if err != nil {
		t.Fatal(err)
	}
	if len(missing) > 0 {
		t.Skip(missing)
	}
	// Even one in a folder of its own.
	if fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0); !errors.Is(err, unix.EACCES) {
		t.Errorf("a unix socket: %d, %v", fd, unix.Connect(fd, &unix.SockaddrUnix{Name: dir + "/tmp/socket"}))
	}
	if pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err != nil {
		t.Errorf("a pair of sockets: %v", err)
	} else if err := unix.Connect(pair[0], &unix.SockaddrUnix{Name: dir + "/tmp/socket"}); err == nil {
		t.Error("one of a pair of sockets was connected elsewhere")
	}
	node := os.Getppid()
	for name, call := range map[string]func() error{
		"trace the node":         func() error { return unix.PtraceAttach(node) },
		"trace by a raw call":    func() error { return raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(node)) },
		"leave the session":      func() error { return raw(unix.SYS_SETSID) },
		"leave the group":        func() error { return raw(unix.SYS_SETPGID) },
		"make an io_uring":       func() error { return raw(unix.SYS_IO_URING_SETUP, 1) },
		"signal the node":        func() error { return syscall.Kill(node, 0) },
		"read the node's memory": func() error { return open("/proc/" + strconv.Itoa(node) + "/mem") },
		"see the node's files":   func() error { return open("/proc/" + strconv.Itoa(node) + "/fd/0") },
	} {
		if err := call(); err == nil {
			t.Errorf("%s: nothing stopped it", name)
		}
	}
}

func raw(number uintptr, args ...uintptr) error {
	args = append(args, 0, 0, 0)
	if _, _, errno := unix.RawSyscall(number, args[0], args[1], args[2]); errno != 0 {
		return errno
	}
	return nil
}

func open(path string) error {
	fd, err := unix.Open(path, unix.O_RDWR, 0)
	if err == nil {
		unix.Close(fd)
	}
	return err
}

// TestLandlockStopsTracing: the filter is not all that keeps a worker from the
// memory of its node, which has the pool's keys.
func TestLandlockStopsTracing(t *testing.T) {
	if dir := os.Getenv("OUTBOARD_TEST_TRACE"); dir != "" {
		runtime.LockOSThread()
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err = errors.Join(err, restrictFiles(control.Config{CacheDir: dir, TmpDir: dir})); err != nil {
			t.Skip(err)
		}
		if err := open("/proc/" + strconv.Itoa(os.Getppid()) + "/mem"); err == nil {
			t.Error("the parent's memory can be written")
		}
		if err := raw(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(os.Getppid())); !errors.Is(err, unix.EPERM) {
			t.Errorf("the parent can be traced: %v", err)
		}
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestLandlockStopsTracing$")
	cmd.Env = append(os.Environ(), "OUTBOARD_TEST_TRACE="+t.TempDir())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
