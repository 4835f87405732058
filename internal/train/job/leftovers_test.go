package job

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

func TestSystemVOf(t *testing.T) {
	const list = `       key      shmid perms                  size  cpid  lpid nattch   uid   gid  cuid  cgid
         0          3   600              67108864   100   100      0     7     7  1879244801  7
         0          4   600              67108864   100   100      0  1879244801  7     7  7
         0          x   600
`
	if got := systemVOf(list, 1879244801); !slices.Equal(got, []uintptr{3}) {
		t.Errorf("got %v, want 3", got)
	}
	for _, text := range []string{"", "cuid\n1\n", "key id cuid\n1 -2 5\n"} {
		if got := systemVOf(text, 5); got != nil {
			t.Errorf("%q: got %v, want none", text, got)
		}
	}
}

func TestRemoveOwned(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	if err := os.Symlink(other, filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "folder", "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	uid := uint32(os.Geteuid())
	if err := removeOwned(dir, uid+1); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("of another user's: %v, %v, want 2 left", left, err)
	}
	if err := removeOwned(dir, uid); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("the folder behind a link: %v", err)
	}
	if err := removeOwned(filepath.Join(dir, "none"), uid); err != nil {
		t.Error(err)
	}
}

// asUser calls f in a thread that has the rights of a user.
func asUser(t *testing.T, uid uint32, f func() error) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			done <- errno
			return
		}
		done <- f()
	}()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// Ranks of a node of root's leave no shared memory and no process, whatever session it is in.
func TestRanksLeaveNothing(t *testing.T) {
	need.Root(t) // only a node of root's gives ranks a user
	h := NewHost(HostOptions{Mode: ModeConfined})
	r := &run{host: h, key: key{"east", "job-abc", 1}, uid: h.newUID()}
	name := filepath.Join(sharedMemoryDir, "outboard-test-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(name) })
	segment := -1
	asUser(t, r.uid, func() (err error) {
		if segment, err = unix.SysvShmGet(unix.IPC_PRIVATE, 1<<20, unix.IPC_CREAT|0o600); err != nil {
			return err
		}
		return os.WriteFile(name, []byte("left"), 0o600)
	})
	cmd := exec.Command("/bin/sh", "-c", "read end")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r.close()
	_ = in.Close()
	_ = cmd.Wait() // its status is below
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
		t.Errorf("the process was not ended: %v", cmd.ProcessState)
	}
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Errorf("the named shared memory stays: %v", err)
	}
	if _, err := unix.SysvShmCtl(segment, unix.IPC_RMID, nil); err == nil {
		t.Error("the shared memory of System V stayed")
	}
}

// A process that a rank has started in a session of its own, and left, ends with the run where there
// are no control groups and ranks have the node's user.
func TestRanksLeaveNoProcessWithoutControlGroups(t *testing.T) {
	const orphan = `mkfifo ../fifo; (setsid sh -c 'echo $$ >../fifo; exec sleep 1000' &); read pid <../fifo; echo $pid >../pid`
	r := &run{
		host: NewHost(HostOptions{Mode: ModeTrusted}), key: key{"east", "job-abc", 1}, out: &writer{out: io.Discard}, dir: t.TempDir(),
		leases: []outboard.Lease{{Device: "east/0"}}, start: &start{World: 1, Count: 1, PerDevice: 1, Args: []string{"sh", "-c", orphan}},
	}
	if err := os.Mkdir(filepath.Join(r.dir, filesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.server, err = ranks.Serve(filepath.Join(r.dir, ranksSocket), ranks.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := r.launch(t.Context()); err != nil {
		t.Error(err)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r.close()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0); n != 1 {
		t.Errorf("the process runs on: %v", err)
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // nothing else ends it
	}
}

// The next start of a node of root's that was killed removes the shared memory of its ranks.
func TestKilledNodesRanksLeaveNoSharedMemory(t *testing.T) {
	need.Root(t)
	t.Setenv("TMPDIR", t.TempDir())
	uid := NewHost(HostOptions{Mode: ModeConfined}).newUID()
	dir := filepath.Join(os.TempDir(), "outboard-job-a1-7")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(dir, int(uid), int(uid)); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(sharedMemoryDir, "outboard-test-killed-"+strconv.Itoa(os.Getpid()))
	t.Cleanup(func() { _ = os.Remove(name) })
	segment := -1
	asUser(t, uid, func() (err error) {
		if segment, err = unix.SysvShmGet(unix.IPC_PRIVATE, 1<<20, unix.IPC_CREAT|0o600); err != nil {
			return err
		}
		return os.WriteFile(name, []byte("left"), 0o600)
	})
	NewHost(HostOptions{Owner: "a1"})
	if _, err := os.Lstat(name); !os.IsNotExist(err) {
		t.Errorf("the named shared memory stays: %v", err)
	}
	if _, err := unix.SysvShmCtl(segment, unix.IPC_RMID, nil); err == nil {
		t.Error("the shared memory of System V stayed")
	}
	if _, err := os.Lstat(dir); !os.IsNotExist(err) {
		t.Errorf("the folder stays: %v", err)
	}
}

// Ranks that leave a folder deeper than the node may have descriptors leave nothing, and take no
// descriptors from it.
func TestRanksLeaveDeepFolders(t *testing.T) {
	h := NewHost(HostOptions{Mode: ModeConfined})
	r := &run{host: h, key: key{"east", "job-abc", 1}, dir: filepath.Join(t.TempDir(), "ranks")}
	at, name := unix.AT_FDCWD, r.dir
	for range 2000 {
		if err := unix.Mkdirat(at, name, 0o700); err != nil {
			t.Fatal(err)
		}
		below, err := unix.Openat(at, name, unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(at) // the first is no descriptor
		at, name = below, "down"
	}
	_ = unix.Close(at)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &old) })
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	r.close()
	if _, err := os.Lstat(r.dir); !os.IsNotExist(err) {
		t.Errorf("the folder stays: %v", err)
	}
}
