package lend_test

import (
	"errors"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/accel/lend/fake"
	"github.com/outboard-run/outboard/internal/metricstest"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/shm"
)

const workerArg = "fake-worker"

func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == workerArg {
		os.Exit(fake.Worker())
	}
	// A worker that ends under the race detector would wait for a second.
	_ = os.Setenv("GORACE", "atexit_sleep_ms=0")
	os.Exit(m.Run())
}

func spec() lend.Spec {
	return lend.Spec{
		Lease: outboard.Lease{
			Grant:  outboard.Grant{Lease: "lease", Holder: "dinghy", Memory: 1 << 20, Weight: 1},
			Device: "harbour/opencl/0",
		},
		Device: outboard.Device{ID: "harbour/opencl/0", API: outboard.OpenCL},
		Index:  3,
		Via:    "shm",
	}
}

func open(t *testing.T, change func(*lend.Options)) (*lend.Host, string) {
	t.Helper()
	dir := t.TempDir()
	opts := lend.Options{Dir: dir, Command: []string{os.Args[0], workerArg}, Area: 1 << 16, Grace: 10 * time.Second}
	if change != nil {
		change(&opts)
	}
	h, err := lend.Open(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h, dir
}

func start(t *testing.T, h *lend.Host) *lend.Session {
	t.Helper()
	s, err := h.Start(spec())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ask sends text and returns the answer, which comes in one piece.
func ask(t *testing.T, r *shm.Ring, text string) (string, error) {
	t.Helper()
	room, err := r.Reserve(len(text))
	if err != nil {
		return "", err
	}
	r.Commit(copy(room, text))
	got, err := r.Next(1)
	answer := string(got)
	r.Release(len(got))
	return answer, err
}

// gone reports whether the process no longer runs.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}

// awaitGone waits for a process that nobody here can wait for.
func awaitGone(t *testing.T, pid int) {
	t.Helper()
	for !gone(pid) {
		if t.Context().Err() != nil {
			t.Fatalf("process %d still runs", pid)
		}
		_, _, _ = syscall.Syscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	}
}

func TestSession(t *testing.T) {
	registry := prometheus.NewRegistry()
	h, dir := open(t, func(o *lend.Options) { o.Metrics = registry })
	s := start(t, h)
	got, err := ask(t, s.Ring(), "hello")
	if err != nil || got != "hello" {
		t.Fatalf("got %q, %v, want the echo", got, err)
	}
	got, err = ask(t, s.Ring(), fake.Config)
	if want := string(s.ID) + " dinghy 3 1MiB"; err != nil || got != want {
		t.Errorf("got configuration %q, %v, want %q", got, err, want)
	}
	if all := h.Sessions(); len(all) != 1 || all[0] != s {
		t.Errorf("got sessions %v, want the one", all)
	}
	worker := s.Worker()
	s.End(nil)
	if err := s.Close(); err != nil {
		t.Errorf("got %v, want a clean end", err)
	}
	if !gone(worker) {
		t.Errorf("worker %d still runs", worker)
	}
	left, err := os.ReadDir(filepath.Join(dir, "tmp"))
	if err != nil || len(left) != 0 {
		t.Errorf("got %v, %v, want no temporary folders", left, err)
	}
	if all := h.Sessions(); len(all) != 0 {
		t.Errorf("got sessions %v, want none", all)
	}
	err = metricstest.Compare(registry, strings.NewReader(`
# HELP outboard_accel_sessions_ended_total Sessions that ended, by how.
# TYPE outboard_accel_sessions_ended_total counter
outboard_accel_sessions_ended_total{end="clean"} 1
`), "outboard_accel_sessions_ended_total")
	if err != nil {
		t.Error(err)
	}
}

// Lines of a worker's standard error are in the node's log, with the session and its holder.
func TestStandardErrorIsLogged(t *testing.T) {
	var text syncBuffer
	h, _ := open(t, func(o *lend.Options) { o.Log = slog.New(slog.NewTextHandler(&text, nil)) })
	s := start(t, h)
	for _, line := range []string{"warning: a loop is not unrolled", "  ", strings.Repeat("x", 3000)} {
		if got, err := ask(t, s.Ring(), fake.Say+line); err != nil || got != "said" {
			t.Fatalf("%q, %v", got, err)
		}
	}
	for _, want := range []string{"warning: a loop is not unrolled", strings.Repeat("x", 1024), strings.Repeat("x", 1024)} {
		if got, err := ask(t, s.Ring(), fake.Told); err != nil || got != want {
			t.Errorf("the program is told %.40q, %v", got, err)
		}
	}
	if err := s.Close(); err != nil { // it waits for the last line
		t.Fatal(err)
	}
	got := text.String()
	want := `session=` + string(s.ID) + ` holder=dinghy severity=stderr text="warning: a loop is not unrolled"`
	if !strings.Contains(got, want) || strings.Count(got, "severity=stderr") != 4 {
		t.Errorf("the log is %s", got)
	}
}

// syncBuffer is a buffer for several goroutines.
type syncBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func TestEnds(t *testing.T) {
	killed := outboard.Errorf(outboard.LeaseLost, "session", "the lease expired")
	tests := map[string]struct {
		end  func(t *testing.T, s *lend.Session) error // returns what the program sees
		kind outboard.Kind
		text string
	}{
		"crash": {
			end: func(t *testing.T, s *lend.Session) error {
				_, err := ask(t, s.Ring(), fake.Crash)
				return err
			},
			kind: outboard.SessionLost,
			text: "session: the worker on harbour/opencl/0 crashed (exit status 1: fake worker: the kernel went wrong)",
		},
		"worker killed": {
			end: func(t *testing.T, s *lend.Session) error {
				if err := syscall.Kill(s.Worker(), syscall.SIGKILL); err != nil {
					t.Error(err)
				}
				_, err := s.Ring().Next(1)
				return err
			},
			kind: outboard.SessionLost,
			text: "session: the worker on harbour/opencl/0 crashed (signal: killed)",
		},
		"final message": {
			end: func(t *testing.T, s *lend.Session) error {
				_, err := ask(t, s.Ring(), fake.Fail)
				return err
			},
			kind: outboard.Exhausted,
			text: "session: the worker on harbour/opencl/0 ended: out of fake memory",
		},
		"ended by the node": {
			end: func(_ *testing.T, s *lend.Session) error {
				s.End(killed)
				_, err := s.Ring().Next(1)
				return err
			},
			kind: outboard.LeaseLost,
			text: killed.Error(),
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			h, _ := open(t, nil)
			s := start(t, h)
			defer s.Close()
			if got := outboard.KindOf(test.end(t, s)); got != test.kind {
				t.Errorf("program: got kind %v, want %v", got, test.kind)
			}
			<-s.Done()
			if diff := cmp.Diff(test.text, s.Err().Error()); diff != "" || outboard.KindOf(s.Err()) != test.kind {
				t.Errorf("kind %v, want %v; (-want +got):\n%s", outboard.KindOf(s.Err()), test.kind, diff)
			}
		})
	}
}

func TestHangingWorkerIsKilledWithItsChildren(t *testing.T) {
	h, _ := open(t, func(o *lend.Options) { o.Grace = time.Millisecond })
	s := start(t, h)
	text, err := ask(t, s.Ring(), fake.Child)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	room, err := s.Ring().Reserve(len(fake.Hang))
	if err != nil {
		t.Fatal(err)
	}
	s.Ring().Commit(copy(room, fake.Hang))
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	awaitGone(t, child)
}

func TestOwns(t *testing.T) {
	h, _ := open(t, nil)
	if h.Owns(os.Getpid()) || h.Owns(1) {
		t.Error("without a worker nobody is one")
	}
	s := start(t, h)
	defer s.Close()
	child, err := ask(t, s.Ring(), fake.Child)
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(child)
	if err != nil {
		t.Fatal(err)
	}
	// Somebody else's child, which lives on until its input ends.
	stranger := exec.CommandContext(t.Context(), "cat")
	input, err := stranger.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := stranger.Start(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		pid  int
		want bool
	}{
		"worker": {s.Worker(), true}, "its child": {pid, true}, "the node": {os.Getpid(), false},
		"init": {1, false}, "another child of the node": {stranger.Process.Pid, false},
	} {
		if got := h.Owns(test.pid); got != test.want {
			t.Errorf("%s: got %v, want %v", name, got, test.want)
		}
	}
	_ = input.Close()
	_ = stranger.Wait()
	if !h.Owns(stranger.Process.Pid) {
		t.Error("a process that is gone may have been a worker")
	}
}

func TestWorkerGetsTheMachinesEnvironment(t *testing.T) {
	h, _ := open(t, func(o *lend.Options) {
		o.Environ = []string{
			"PATH=/bin", "OUTBOARD_SOCKET=/x", "OUTBOARD_TOKEN=secret", "OCL_ICD_VENDORS=/borrowed",
			"AWS_SECRET_ACCESS_KEY=secret", "POCL_MAX_PTHREAD_COUNT=2", "HOME=/root", "LD_PRELOAD=/x", "MY_DRIVER=1",
		}
		o.Sandbox.Environ = []string{"MY_DRIVER"}
	})
	s := start(t, h)
	defer s.Close()
	got, err := ask(t, s.Ring(), fake.Environ)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"PATH=/bin", "POCL_MAX_PTHREAD_COUNT=2", "MY_DRIVER=1"}, strings.Split(got, "\x00")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestLimit(t *testing.T) {
	h, _ := open(t, func(o *lend.Options) { o.MaxSessions = 1 })
	s := start(t, h)
	if _, err := h.Start(spec()); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("got %v, want Exhausted", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	s = start(t, h)
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// One lease can't take all sessions of a host.
func TestLeaseLimit(t *testing.T) {
	h, _ := open(t, func(o *lend.Options) { o.MaxLeaseSessions = 1 })
	s := start(t, h)
	defer s.Close()
	if _, err := h.Start(spec()); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("a second session of the lease: got %v, want Exhausted", err)
	}
	other := spec()
	other.Lease.Lease = "other"
	s2, err := h.Start(other)
	if err != nil {
		t.Fatalf("a session of another lease: %v", err)
	}
	if err := s2.Close(); err != nil {
		t.Error(err)
	}
}

// Below the floor that the operator sets no session starts.
func TestRequiredMechanisms(t *testing.T) {
	h, _ := open(t, func(o *lend.Options) { o.Sandbox.Require = []sandbox.Mechanism{sandbox.Cgroup} })
	if _, err := h.Start(spec()); outboard.KindOf(err) != outboard.Denied || !strings.Contains(err.Error(), "cgroup") {
		t.Errorf("got %v, want it refused for the missing cgroup", err)
	}
}

func TestCloseEndsSessions(t *testing.T) {
	h, _ := open(t, nil)
	s := start(t, h)
	if err := h.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Ring().Next(1); outboard.KindOf(err) != outboard.SessionLost {
		t.Errorf("got %v, want SessionLost", err)
	}
	_ = s.Close()
	if _, err := h.Start(spec()); outboard.KindOf(err) != outboard.SessionLost {
		t.Errorf("start after close: got %v, want SessionLost", err)
	}
}

func TestKill(t *testing.T) {
	h, _ := open(t, nil)
	s := start(t, h)
	defer s.Close()
	if err := h.Kill("nobody", nil); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("got %v, want NotFound", err)
	}
	if err := h.Kill(s.ID, outboard.Errorf(outboard.SessionLost, "session", "killed")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Ring().Next(1); errors.Is(err, io.EOF) || outboard.KindOf(err) != outboard.SessionLost {
		t.Errorf("got %v, want SessionLost", err)
	}
}

// A host without caches removes those that are there, and only such a host does.
func TestCachesAreRemovedWhenTurnedOff(t *testing.T) {
	dir := t.TempDir()
	kept := filepath.Join(dir, "cache", "program", "1", "kernel")
	if err := os.MkdirAll(kept, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, off := range []bool{false, true} {
		open(t, func(o *lend.Options) { o.Dir, o.Sandbox.NoCache = dir, off })
		if _, err := os.Stat(kept); errors.Is(err, os.ErrNotExist) != off {
			t.Errorf("turned off %v: a compiled kernel: %v", off, err)
		}
	}
}

func TestOpenRemovesWhatAKilledNodeLeft(t *testing.T) {
	dir := t.TempDir()
	stale := filepath.Join(dir, "tmp", "old-session")
	if err := os.MkdirAll(stale, 0o700); err != nil {
		t.Fatal(err)
	}
	open(t, func(o *lend.Options) { o.Dir = dir })
	if _, err := os.Stat(stale); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("got %v, want the folder gone", err)
	}
}
