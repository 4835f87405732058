package cgroup

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// eatVariable makes this program use memory, or start processes, until it is stopped.
const eatVariable = "CGROUP_TEST_EAT"

func TestMain(m *testing.M) {
	switch os.Getenv(eatVariable) {
	case "memory":
		eatMemory()
	case "tasks":
		eatTasks()
	case "wait":
		_, _ = os.Stdin.Read(make([]byte, 1))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func eatMemory() {
	_, _ = os.Stdin.Read(make([]byte, 1)) // until it is in its group
	var all [][]byte
	for range 512 {
		all = append(all, bytes.Repeat([]byte{1}, 1<<20))
	}
	os.Exit(len(all) & 1)
}

// eatTasks starts processes of a session of their own, which no signal to the group reaches,
// and prints how many there are.
func eatTasks() {
	_, _ = os.Stdin.Read(make([]byte, 1))
	n := 0
	for ; n < 1000; n++ {
		child := exec.Command("sleep", "1000")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if child.Start() != nil {
			break
		}
	}
	fmt.Println(n)
	_, _ = os.Stdin.Read(make([]byte, 1)) // of the end
	os.Exit(0)
}

func open(t *testing.T) *Tree {
	t.Helper()
	tree := Open("cgrouptest" + strconv.Itoa(os.Getpid())) // it ends what an earlier process of the name has
	if err := tree.Err(); err != nil {
		if os.Geteuid() == 0 && strings.Contains(os.Getenv("OUTBOARD_TEST_REQUIRE"), "cgroup") {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := tree.Close(); err != nil {
			t.Error(err)
		}
	})
	return tree
}

// start starts this program as an eater in a group. go lets it begin.
func start(t *testing.T, g *Group, eats string) (cmd *exec.Cmd, begin func(), out *bytes.Buffer) {
	t.Helper()
	cmd = exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), eatVariable+"="+eats)
	out = &bytes.Buffer{}
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout = out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := g.Add(cmd.Process.Pid); err != nil {
		t.Error(err)
	}
	return cmd, func() { _, _ = in.Write([]byte("x")) }, out
}

// A process that takes more memory than its group has is ended, and the group says so.
func TestMemory(t *testing.T) {
	g, err := open(t).Make("eater", Limits{Memory: 128 << 20, Tasks: 100, Weight: 50})
	if err != nil {
		t.Fatal(err)
	}
	cmd, begin, _ := start(t, g, "memory")
	begin()
	if err := cmd.Wait(); err == nil || cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() != syscall.SIGKILL {
		t.Errorf("512 MiB in a group of 128 MiB: got %v, want it killed", err)
	}
	if g.Killed() == 0 {
		t.Error("the group does not report that its memory ran out")
	}
}

// The number of processes is bounded, and all of them end with the group, whatever sessions
// they have made for themselves.
func TestTasksEndAsOne(t *testing.T) {
	g, err := open(t).Make("lease", Limits{Weight: 100})
	if err != nil {
		t.Fatal(err)
	}
	child, err := g.Make("session", Limits{Tasks: 64})
	if err != nil {
		t.Fatal(err)
	}
	cmd, begin, _ := start(t, child, "tasks")
	begin()
	for len(processes(child.dirs[0])) < 30 && t.Context().Err() == nil && syscall.Kill(cmd.Process.Pid, 0) == nil {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SCHED_YIELD, 0, 0, 0)
	}
	if n := len(processes(child.dirs[0])); n > 64 {
		t.Errorf("%d processes in a group of 64 tasks", n)
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait()
	for _, dir := range append(child.dirs, g.dirs...) {
		if _, err := os.Stat(dir); !os.IsNotExist(err) {
			t.Errorf("%s is left: %v", dir, err)
		}
	}
}

// Without cgroup.kill, as before Linux 5.14, a group ends as a whole, too.
func TestKillOneByOne(t *testing.T) {
	g, err := open(t).Make("old", Limits{Tasks: 64})
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := start(t, g, "wait")
	for _, dir := range g.dirs {
		killProcesses(dir)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("a process of the group was not ended")
	}
}

// What a node that was killed left is ended and removed by the next one of its name.
func TestLeftoversAreRemoved(t *testing.T) {
	id := "leftovers" + strconv.Itoa(os.Getpid())
	first := Open(id)
	if first.Err() != nil {
		t.Skip(first.Err())
	}
	g, err := first.Make("session", Limits{})
	if err != nil {
		t.Fatal(err)
	}
	cmd, _, _ := start(t, g, "wait")
	second := Open(id)
	if err := second.Err(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the earlier node's process was not ended")
	}
	// An empty one of another node that has ended goes as well; one that lives stays.
	another := filepath.Join(filepath.Dir(second.root.dirs[0]), treePrefix+"another"+strconv.Itoa(os.Getpid())+"-")
	dead, alive := another+strconv.Itoa(cmd.Process.Pid), another+"1"
	for _, dir := range []string{dead, alive} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Remove(alive)
	third := Open(id)
	if _, err := os.Stat(dead); !os.IsNotExist(err) {
		t.Errorf("%s of a node that has ended: %v", dead, err)
	}
	if _, err := os.Stat(alive); err != nil {
		t.Errorf("of a node that lives: %v", err)
	}
	if err := third.Close(); err != nil {
		t.Error(err)
	}
}

// Without control groups everything is a no-op.
func TestUnavailable(t *testing.T) {
	tree := &Tree{err: errNone}
	g, err := tree.Make("x", Limits{Memory: 1})
	if g != nil || err != nil {
		t.Errorf("got %v, %v", g, err)
	}
	g.Kill()
	if g.Add(1) != nil || g.Remove() != nil || g.Killed() != 0 || tree.Close() != nil || (*Tree)(nil).Err() == nil {
		t.Error("a missing group does something")
	}
}

func TestNames(t *testing.T) {
	g := &Group{}
	for _, name := range []string{"", ".", "..", "a/b", "/", ".x"} {
		if _, err := g.Make(name, Limits{}); err == nil {
			t.Errorf("%q was made", name)
		}
	}
}

func TestParse(t *testing.T) {
	const (
		pure   = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
		hybrid = "30 1 0:30 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n31 1 0:31 / /sys/fs/cgroup/freezer rw - cgroup cgroup rw,freezer\n" +
			"32 1 0:32 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"
		docker = "33 1 0:33 /docker/abc /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
	)
	tests := map[string]struct {
		mountinfo, own string
		want           []mount
	}{
		"systemd": {pure, "0::/system.slice/outboard.service\n", []mount{
			{"/sys/fs/cgroup", "/sys/fs/cgroup/system.slice/outboard.service", nil, true},
		}},
		"a namespace": {pure, "0::/../sibling\n", []mount{{"/sys/fs/cgroup", "/sys/fs/cgroup", nil, true}}},
		"hybrid": {hybrid, "2:cpu,cpuacct:/user\n0::/\n", []mount{
			{"/sys/fs/cgroup/cpu,cpuacct", "/sys/fs/cgroup/cpu,cpuacct/user", []string{"rw", "cpu", "cpuacct"}, false},
			{"/sys/fs/cgroup/unified", "/sys/fs/cgroup/unified", nil, true},
		}},
		"docker": {docker, "4:memory:/docker/abc/x\n", []mount{{"/sys/fs/cgroup/memory", "/sys/fs/cgroup/memory/x", []string{"rw", "memory"}, false}}},
		"junk":   {"x - \n - cgroup2 a b\n\n", "::\n1\n", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, parse(tt.mountinfo, tt.own), cmp.AllowUnexported(mount{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestSettings(t *testing.T) {
	all := map[string]bool{"memory": true, "pids": true, "cpu": true}
	limits := Limits{Memory: 1 << 20, Tasks: 7, Weight: 200}
	for name, tt := range map[string]struct {
		h    hierarchy
		l    Limits
		want string
	}{
		"version 2":      {hierarchy{v2: true, controllers: all}, limits, "memory.max=1048576 memory.swap.max=0 memory.oom.group=1 pids.max=7 cpu.weight=200"},
		"version 1":      {hierarchy{controllers: all}, limits, "memory.limit_in_bytes=1048576 memory.memsw.limit_in_bytes=1048576 pids.max=7 cpu.shares=2048"},
		"too heavy":      {hierarchy{v2: true, controllers: all}, Limits{Weight: 1 << 30}, "cpu.weight=10000"},
		"no limits":      {hierarchy{controllers: all}, Limits{}, ""},
		"no controllers": {hierarchy{v2: true}, limits, ""},
	} {
		var got []string
		for _, s := range tt.h.settings(tt.l) {
			got = append(got, s.file+"="+s.text)
		}
		if strings.Join(got, " ") != tt.want {
			t.Errorf("%s: got %v, want %s", name, got, tt.want)
		}
	}
}

// A controller that is missing is a reason, not a crash.
func TestChoose(t *testing.T) {
	if _, err := choose(nil); err == nil || !strings.Contains(err.Error(), "memory and pids") {
		t.Errorf("got %v", err)
	}
	if _, err := choose([]mount{{own: "/no/such", controllers: []string{"memory"}}, {own: "/no/such", controllers: []string{"pids"}}}); err == nil || !strings.Contains(err.Error(), "/no/such") {
		t.Errorf("got %v", err)
	}
}

// A process that is started in a group belongs to it in every hierarchy, and the thread that has
// started it does not.
func TestBegin(t *testing.T) {
	g, err := open(t).Make("begun", Limits{Tasks: 64})
	if err != nil {
		t.Fatal(err)
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), eatVariable+"=wait")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	end, err := g.Begin(cmd.SysProcAttr)
	if err != nil {
		t.Fatal(err)
	}
	if g.Contains(os.Getpid()) {
		t.Error("the process that starts another one is in the group")
	}
	err = cmd.Start()
	if err := errors.Join(err, end()); err != nil {
		t.Fatal(err)
	}
	if !g.Contains(cmd.Process.Pid) {
		t.Error("the process that was started is not in the group")
	}
	for _, dir := range g.dirs {
		if got := processes(dir); !slices.Equal(got, []int{cmd.Process.Pid}) {
			t.Errorf("%s has the processes %v, want only %d", dir, got, cmd.Process.Pid)
		}
	}
	if err := g.Remove(); err != nil {
		t.Error(err)
	}
	if cmd.Wait() == nil {
		t.Error("the process was not ended")
	}
	end, err = g.Begin(&syscall.SysProcAttr{}) // the group is gone
	if err == nil {
		t.Error("began in a group that does not exist", end())
	}
	if end, err := (*Group)(nil).Begin(nil); err != nil || end() != nil {
		t.Error("a missing group does something")
	}
}

// A process that has joined its tree is in a group beside the tree's other ones; threads that start
// processes return there, and the process itself leaves before the tree is removed.
func TestJoin(t *testing.T) {
	own := func() string {
		text, err := os.ReadFile("/proc/thread-self/cgroup")
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := own()
	tree := open(t)
	if err := tree.Join(); err != nil {
		t.Fatal(err)
	}
	joined := own()
	g, err := tree.Make("session", Limits{Weight: DefaultWeight})
	if err != nil {
		t.Fatal(err)
	}
	for i, h := range tree.root.hierarchies {
		if !h.controllers["cpu"] || h.v2 && h.node == "" { // this process's own group was not delegated
			continue
		}
		member := &Group{hierarchies: []*hierarchy{h}, dirs: []string{filepath.Join(tree.root.dirs[i], memberGroup)}}
		weight := func(load, want int) {
			t.Helper()
			if got, want := member.processorFiles(t)[1], h.weightSetting(want).text; got != want {
				t.Errorf("with a load of %d the weight is %s, want %s", load, got, want)
			}
		}
		weight(0, 100)
		one, err := tree.Make("one", Limits{Load: 1})
		if err != nil {
			t.Fatal(err)
		}
		weight(1, 100)
		several, err := tree.Make("several", Limits{Load: 2})
		if err != nil {
			t.Fatal(err)
		}
		weight(3, 800)
		if err := errors.Join(several.Remove(), several.Remove()); err != nil {
			t.Fatal(err)
		}
		weight(1, 100)
		if err := one.Remove(); err != nil {
			t.Fatal(err)
		}
		if !slices.Contains(processes(member.dirs[0]), os.Getpid()) || filepath.Dir(member.dirs[0]) != filepath.Dir(g.dirs[i]) {
			t.Errorf("this process is in %q, want it in %s, beside %s", joined, member.dirs[0], g.dirs[i])
		}
	}
	runtime.LockOSThread()
	end, err := g.Begin(&syscall.SysProcAttr{})
	if err == nil {
		err = end()
	}
	if err != nil || own() != joined {
		t.Errorf("after a start this thread is in %q, want %q; %v", own(), joined, err)
	}
	runtime.UnlockOSThread()
	if err := tree.Close(); err != nil {
		t.Error(err)
	}
	if got := own(); got != before {
		t.Errorf("after Close this process is in %q, want %q", got, before)
	}
	if err := (*Tree)(nil).Join(); err != nil {
		t.Error(err)
	}
}

// A group that leaves the idle class has its weight again, and a missing group has no idle class.
func TestIdle(t *testing.T) {
	tree := open(t)
	if !tree.CanIdle() {
		t.Skip("this kernel has no idle class")
	}
	if _, err := (*Group)(nil).OpenIdle(); err == nil || (*Tree)(nil).CanIdle() {
		t.Error("a missing group has an idle class")
	}
	for name, weight := range map[string]int{"weighted": 300, "unweighted": 0} {
		g, err := tree.Make(name, Limits{Weight: weight})
		if err != nil {
			t.Fatal(err)
		}
		before := g.processorFiles(t)
		idle, err := g.OpenIdle()
		if err != nil {
			t.Fatal(err)
		}
		for _, on := range []bool{true, true, false, false, true} {
			if err := idle.Set(on); err != nil {
				t.Fatalf("%s: Set(%v): %v", name, on, err)
			}
			got := g.processorFiles(t)
			if want := map[bool]string{true: "1", false: "0"}[on]; got[0] != want || !on && got[1] != before[1] {
				t.Errorf("%s after Set(%v): the class and the weight are %q, before they were %q", name, on, got, before)
			}
		}
		if err := idle.Close(); err != nil {
			t.Error(err)
		}
	}
}

// processorFiles returns the idle class and the weight of a group.
func (g *Group) processorFiles(t *testing.T) (values [2]string) {
	t.Helper()
	for i, h := range g.hierarchies {
		if !h.controllers["cpu"] {
			continue
		}
		for k, file := range []string{idleFile, h.weightSetting(1).file} {
			text, err := os.ReadFile(filepath.Join(g.dirs[i], file))
			if err != nil {
				t.Fatal(err)
			}
			values[k] = strings.TrimSpace(string(text))
		}
	}
	return values
}

// A thread does not move to a group if it may not return to the one that it comes from.
func TestThreadThatCannotReturnStays(t *testing.T) {
	parent, dir := t.TempDir(), t.TempDir()
	tasks := filepath.Join(dir, tasksFile)
	if err := os.WriteFile(tasks, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var b begun
	if err := b.moveThread(parent, dir); err == nil {
		t.Error("moved from a group without tasks")
	}
	if moved, err := os.ReadFile(tasks); err != nil || len(moved) > 0 {
		t.Errorf("wrote %q, %v", moved, err)
	}
}
