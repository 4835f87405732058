package worker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/accel/control"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/shm"
)

// litterArgument makes this program a worker that tries to leave something behind. A variable
// that sandboxes keep tells its processes.
const (
	litterArgument = "test-litter"
	litterVariable = "OPENCL_TEST_LITTER"
	litterSize     = 2 << 20 // bytes in each place
)

// litter is the hostile worker. It has the sandbox of a real one, and no driver.
func litter() int {
	if os.Getenv(litterVariable) == "child" {
		signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
		select {}
	}
	cfg, isolation, isolated, err := inheritedConfig()
	ring, socket := os.NewFile(ringDescriptor, "ring"), os.NewFile(controlDescriptor, "control")
	if err == nil && !isolated {
		if cfg, err = control.ReadConfig(socket); err == nil {
			files := []*os.File{ring, socket}
			if cfg.Recipes {
				files = append(files, os.NewFile(recipesDescriptor, "recipes"))
			}
			err = isolateAndRestart(cfg, files...)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	conn, err := control.FromFile(socket)
	if err != nil {
		return 1
	}
	_ = conn.Send(control.Message{Type: control.TypeIsolation, Isolation: &isolation})
	if cfg.Compile { // as a real one
		conn.Final(compile(context.Background(), cfg, ring))
		return 0
	}
	if !cfg.Inspect {
		leaveLitter(&cfg)
		if r, err := shm.Open(ring, shm.Worker); err == nil {
			if room, err := r.Reserve(1); err == nil {
				r.Commit(copy(room, "!"))
			}
			_, _ = r.Next(1) // until the node ends the session
		}
	}
	conn.Final(nil)
	return 0
}

// leaveLitter leaves files, shared memory, descriptors in flight, recipes and processes. Errors
// do not matter: the less is left the better.
func leaveLitter(cfg *control.Config) {
	data := bytes.Repeat([]byte{1}, litterSize)
	for _, dir := range []string{cfg.CacheDir, cfg.TmpDir, "/dev/shm", "/tmp", "/var/tmp", "/run", "/"} {
		_ = os.WriteFile(filepath.Join(dir, "litter"), data, 0o777)
		_ = os.MkdirAll(filepath.Join(dir, strings.Repeat("d/", 50)), 0o777)
	}
	if fd, err := unix.MemfdCreate("litter", 0); err == nil {
		_, _ = unix.Write(fd, data)
		if pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0); err == nil {
			_ = unix.Sendmsg(pair[0], []byte{1}, unix.UnixRights(fd, pair[0], pair[1]), nil, 0) // a cycle
		}
	}
	_, _ = unix.SysvShmGet(unix.IPC_PRIVATE, litterSize, unix.IPC_CREAT|0o666)
	if cfg.Recipes {
		_, _ = os.NewFile(recipesDescriptor, "recipes").WriteString(`{"key":"junk"}` + "\n")
	}
	for range 2 {
		child := exec.Command("/proc/self/exe", litterArgument)
		child.Env = []string{litterVariable + "=child"}
		_ = child.Start()
	}
}

// litterSessions is how many hostile sessions there are: a thousand in `make attack`.
func litterSessions() int {
	if n, err := strconv.Atoi(os.Getenv("OUTBOARD_ATTACK_SESSIONS")); err == nil {
		return n
	}
	return 20
}

// machineState is what hostile sessions might have left on the machine.
type machineState struct {
	Shm, SysV, Mounts, Processes, Files, Groups []string
}

// stateOf lists what belongs to the host whose folder is dir.
func stateOf(t *testing.T, dir string, uid int) (s machineState) {
	t.Helper()
	read := func(path string) []string {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil
		}
		return slices.DeleteFunc(strings.Split(string(text), "\n"), func(line string) bool {
			return !strings.Contains(line, dir) && !strings.Contains(line, strconv.Itoa(uid))
		})
	}
	s.SysV, s.Mounts = read("/proc/sysvipc/shm"), read("/proc/self/mountinfo")
	s.Shm, _ = filepath.Glob("/dev/shm/litter*")
	s.Groups, _ = filepath.Glob("/sys/fs/cgroup/*/outboard-littertest*-" + strconv.Itoa(os.Getpid()) + "/lease-*")
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error {
		s.Files = append(s.Files, path)
		return nil
	})
	statuses, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range statuses {
		if text, err := os.ReadFile(path); err == nil && bytes.Contains(text, []byte(litterArgument)) {
			s.Processes = append(s.Processes, path)
		}
	}
	return s
}

func (s machineState) diff(before machineState) (errs []error) {
	for name, lists := range map[string][2][]string{
		"files in /dev/shm": {before.Shm, s.Shm}, "System V memory": {before.SysV, s.SysV}, "mounts": {before.Mounts, s.Mounts},
		"processes": {before.Processes, s.Processes}, "files": {before.Files, s.Files}, "control groups": {before.Groups, s.Groups},
	} {
		if !slices.Equal(lists[0], lists[1]) {
			errs = append(errs, fmt.Errorf("%s: %v before, %v after", name, lists[0], lists[1]))
		}
	}
	return errs
}

// sharedMemory is the machine's memory in tmpfs, memfds and shared segments.
func sharedMemory(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), "\nShmem:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

func openFiles(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}

// awaitAtMost waits until count is at most most: what ends a session goes on for a moment after it.
func awaitAtMost(t *testing.T, what string, most int, count func() int) {
	t.Helper()
	for limit := time.Now().Add(time.Minute); count() > most; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d %s, want at most %d", count(), what, most)
		}
	}
}

// Sessions that try to leave files, shared memory, processes and cached code leave nothing.
func TestNothingIsLeft(t *testing.T) {
	dir := t.TempDir()
	groups := cgroup.Open("littertest" + strconv.Itoa(os.Getpid()))
	defer groups.Close()
	h, err := lend.Open(t.Context(), lend.Options{Dir: dir, Command: []string{os.Args[0], litterArgument}, Groups: groups})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if !strings.Contains(h.Isolation(), "mounts") {
		t.Skip("this machine allows no mount namespaces: ", h.Isolation())
	}
	const warmUp = 3 // the cache and its user are made; the heap grows
	for range warmUp {
		litterSession(t, h)
	}
	before := awaitState(t, dir, nil)
	memory, files, goroutines := sharedMemory(t), openFiles(t), runtime.NumGoroutine()
	n := litterSessions()
	for range n {
		litterSession(t, h)
	}
	awaitState(t, dir, &before)
	awaitAtMost(t, "files are open", files+2, func() int { return openFiles(t) })
	awaitAtMost(t, "goroutines run", goroutines+2, runtime.NumGoroutine)
	// Others use the machine too; what n sessions leave in one place alone would show.
	if now := sharedMemory(t); n >= 500 && now > memory+n*litterSize/4 {
		t.Errorf("%d MiB of shared memory, %d were", now>>20, memory>>20)
	}
}

// awaitState waits until everything is as before, or, if before is nil, until no compile step
// runs, whose processes and files are none of a session's.
func awaitState(t *testing.T, dir string, before *machineState) machineState {
	t.Helper()
	deadline := time.Now().Add(2 * time.Minute)
	for {
		now := stateOf(t, dir, 0x70000000)
		var errs []error
		if before != nil {
			errs = now.diff(*before)
		} else if slices.ContainsFunc(now.Files, func(path string) bool {
			return strings.HasSuffix(path, "/draft") || strings.HasSuffix(path, "/compile")
		}) || len(now.Processes) > 0 {
			errs = append(errs, errors.New("a compile step runs"))
		}
		if len(errs) == 0 {
			return now
		}
		if time.Now().After(deadline) {
			t.Fatal(errors.Join(errs...))
		}
		runtime.Gosched()
	}
}

// litterSession runs one hostile session.
func litterSession(t *testing.T, h *lend.Host) {
	t.Helper()
	s := openSession(t, h, "litter")
	if _, err := s.Ring().Next(1); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
