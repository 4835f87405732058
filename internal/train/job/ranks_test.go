package job

import (
	"bufio"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// A program is a process of a test that prints one line, the number of a process, and then waits
// for the end of its input.
type program struct {
	cmd   *exec.Cmd
	child int
	in    io.Writer
	out   *bufio.Reader
}

// startProgram starts a shell script in a process group of its own.
func startProgram(t *testing.T, dir, script string, environ ...string) *program {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), environ...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = cmd.Wait()
	})
	p := &program{cmd: cmd, in: in, out: bufio.NewReader(stdout)}
	p.child = p.readPID(t)
	return p
}

// readPID reads a line with the number of a process.
func (p *program) readPID(t *testing.T) int {
	t.Helper()
	line, err := p.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// newSession prints the number of a process in a session of its own, whose parent lives.
const newSession = `setsid sh -c 'echo $$; read end'; true`

func TestOwnsFollowsRanksIntoTheirSessions(t *testing.T) {
	h := NewHost(HostOptions{})
	rank, stranger := startProgram(t, "", newSession), startProgram(t, "", newSession)
	if h.Owns(rank.child) {
		t.Error("without ranks no process is one")
	}
	h.setPID(rank.cmd.Process.Pid, &run{})
	for name, c := range map[string]struct {
		pid  int
		want bool
	}{
		"rank": {rank.cmd.Process.Pid, true}, "its child in another session": {rank.child, true},
		"stranger": {stranger.child, false}, "node": {os.Getpid(), false}, "init": {1, false},
	} {
		if got := h.Owns(c.pid); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// The server of a run's ranks serves them, and no rank of another run, whose user may be the same.
func TestRanksOfOtherRuns(t *testing.T) {
	h := NewHost(HostOptions{Foreign: func(pid int) bool { return pid == 1 }})
	own, other := &run{host: h}, &run{host: h}
	rank, stranger, program := startProgram(t, "", newSession), startProgram(t, "", newSession), startProgram(t, "", newSession)
	h.setPID(rank.cmd.Process.Pid, own)
	h.setPID(stranger.cmd.Process.Pid, other)
	for name, c := range map[string]struct {
		pid  int
		want bool
	}{
		"rank": {rank.cmd.Process.Pid, false}, "its child in another session": {rank.child, false},
		"rank of another run": {stranger.cmd.Process.Pid, true}, "child of that": {stranger.child, true},
		"other program": {program.child, false}, "other foreign code": {1, true},
	} {
		if got := h.refuses(own, c.pid); got != c.want {
			t.Errorf("%s: refused %v, want %v", name, got, c.want)
		}
	}
}

// newRun returns the run of one rank that a host of control groups has started.
func newRun(t *testing.T, args ...string) *run {
	t.Helper()
	groups := cgroup.Open("jobtest" + strconv.Itoa(os.Getpid())) // Open ends what an earlier process of the name has
	if err := groups.Err(); err != nil {
		t.Skip(err)
	}
	h := NewHost(HostOptions{Mode: ModeTrusted, Groups: groups, Memory: func(leases []outboard.Lease) int64 { return int64(len(leases)) * 64 << 20 }})
	r := &run{
		host: h, key: key{"east", "job-abc", 1}, start: &start{World: 1, Count: 1, PerDevice: 1, Args: args},
		leases: []outboard.Lease{{Device: "east/0"}}, out: &writer{out: io.Discard}, dir: t.TempDir(),
	}
	if err := os.Mkdir(filepath.Join(r.dir, filesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.server, err = ranks.Serve(filepath.Join(r.dir, ranksSocket), ranks.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := r.makeGroup(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		r.close()
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// A rank that can't be in the job's control group, which bounds it, does not start.
func TestRanksWithoutTheirGroup(t *testing.T) {
	r := newRun(t, "sh", "-c", "touch ran; exit 3")
	if err := r.group.Remove(); err != nil {
		t.Fatal(err)
	}
	err := r.launch(t.Context())
	if err == nil || !strings.Contains(err.Error(), "control group") {
		t.Errorf("the ranks end with %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, filesDir, "ran")); err == nil {
		t.Error("the program has run")
	}
	if err := r.makeGroup(); err != nil {
		t.Fatal(err)
	}
	if err := r.launch(t.Context()); err == nil || !strings.Contains(err.Error(), "status 3") {
		t.Errorf("in a group: %v", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, filesDir, "ran")); err != nil {
		t.Error(err)
	}
}

// The variables of a job do not reach the process that confines itself before it becomes a rank: its
// loader would execute what LD_PRELOAD names, with the rights of the node.
func TestVariablesOfAJobReachNoHelper(t *testing.T) {
	seen := filepath.Join(t.TempDir(), "seen")
	h := NewHost(HostOptions{Mode: ModeConfined, Command: []string{"/bin/sh", "-c", "env >" + seen}})
	r := &run{
		host: h, key: key{"east", "job-abc", 1}, out: &writer{out: io.Discard}, dir: t.TempDir(), leases: []outboard.Lease{{Device: "east/0"}},
		start: &start{World: 1, Count: 1, PerDevice: 1, Args: []string{"true"}, Env: map[string]string{"LD_PRELOAD": "hostile.so", "LD_AUDIT": "hostile.so", "GODEBUG": "hostile=1"}},
	}
	if err := os.Mkdir(filepath.Join(r.dir, filesDir), 0o700); err != nil {
		t.Fatal(err)
	}
	var err error
	if r.server, err = ranks.Serve(filepath.Join(r.dir, ranksSocket), ranks.Options{}); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if err := r.launch(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(seen)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "LD_") || strings.HasPrefix(line, "GO") {
			t.Errorf("the helper has %s", line)
		}
	}
	if !strings.Contains(string(text), "LD_PRELOAD=hostile.so\n") {
		t.Errorf("want that the rank gets its variables from it: %s", text)
	}
}

// Without control groups ranks run, unless the operator requires them.
func TestRequiredGroup(t *testing.T) {
	for _, require := range []bool{false, true} {
		r := &run{host: NewHost(HostOptions{RequireGroup: require, Self: "east"}), key: key{"east", "job-abc", 1}}
		err := r.makeGroup()
		if (outboard.KindOf(err) == outboard.Denied) != require || (err != nil) != require {
			t.Errorf("required: %v, got %v", require, err)
		}
	}
}

// A process of a rank whose parent has ended is known by its control group.
func TestOwnsKnowsControlGroups(t *testing.T) {
	r := newRun(t, "true")
	if err := r.host.register(r.key, r); err != nil {
		t.Fatal(err)
	}
	p := startProgram(t, "", `echo $$; read go; exec 3<&0; (setsid sh -c 'echo $$; read end' <&3 &); read end`)
	if err := r.group.Add(p.cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(p.in, "go\n"); err != nil {
		t.Fatal(err)
	}
	if orphan := p.readPID(t); !r.host.Owns(orphan) || r.host.Owns(os.Getpid()) {
		t.Error("want the process in the group, and not the node")
	}
}

// Ranks that take more memory than their leases give end, and the job hears why.
func TestMemoryOfRanksIsBounded(t *testing.T) {
	r := newRun(t, "tail", "/dev/zero") // It holds a line that never ends.
	err := r.launch(context.Background())
	if e := r.report(context.Background(), err); e.Status != 137 || !strings.Contains(e.Reason, "64MiB of memory") {
		t.Errorf("got %+v, want status 137 and the limit", e)
	}
}

// What ranks of a killed node have left ends with the next start of that node, and nothing of
// another's.
func TestSweepOfWhatAKilledNodeLeft(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	left := func(owner string) string {
		t.Helper()
		dir, err := os.MkdirTemp("", (&Host{opts: HostOptions{Owner: owner}}).folderPrefix())
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(dir, filesDir), 0o700); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	ours, another := left("a1"), left("a12")
	wait := `echo $$; read end`
	working := startProgram(t, filepath.Join(ours, filesDir), wait)
	named := startProgram(t, "", wait, socketVariable+"="+filepath.Join(ours, ranksSocket))
	stranger := startProgram(t, filepath.Join(another, filesDir), wait, socketVariable+"="+filepath.Join(another, ranksSocket))
	NewHost(HostOptions{Owner: "a1"})
	for name, p := range map[string]*program{"in the folder": working, "with the socket": named} {
		var status syscall.WaitStatus
		if _, err := syscall.Wait4(p.cmd.Process.Pid, &status, syscall.WNOHANG, nil); err != nil || status.Signal() != syscall.SIGKILL {
			t.Errorf("the process %s was not killed: %v, %v", name, status, err)
		}
	}
	if err := stranger.cmd.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("another node's process: %v", err)
	}
	if _, err := os.Stat(ours); !os.IsNotExist(err) {
		t.Errorf("the folder of the killed node stays: %v", err)
	}
	if _, err := os.Stat(another); err != nil {
		t.Errorf("another node's folder: %v", err)
	}
}
