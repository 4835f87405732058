package lend_test

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/accel/lend/fake"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// openGrouped opens a host whose workers get control groups.
func openGrouped(t *testing.T, change func(*lend.Options)) *lend.Host {
	t.Helper()
	groups := cgroup.Open("lendtest" + strconv.Itoa(os.Getpid())) // Open ends what an earlier process of the name has
	if err := groups.Err(); err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() {
		if err := groups.Close(); err != nil {
			t.Error(err)
		}
	})
	h, _ := open(t, func(o *lend.Options) {
		o.Groups = groups
		if change != nil {
			change(o)
		}
	})
	return h
}

// groupsOf returns the control groups of a process that the host made.
func groupsOf(t *testing.T, pid int) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	var groups []string
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, "outboard-lendtest") {
			groups = append(groups, filepath.Base(strings.TrimSpace(line)))
		}
	}
	return groups
}

// Each session has a control group of its own, which `require=cgroup` relies on, and nothing
// of it is left when the session ends, whatever it has started.
func TestControlGroups(t *testing.T) {
	h := openGrouped(t, func(o *lend.Options) { o.Sandbox.Require = []sandbox.Mechanism{sandbox.Cgroup} })
	if !strings.Contains(h.Isolation(), "cgroup") {
		t.Errorf("isolated by %s, want cgroup among it", h.Isolation())
	}
	s, second := start(t, h), start(t, h)
	for _, s := range []*lend.Session{s, second} {
		groups := groupsOf(t, s.Worker())
		slices.Sort(groups)
		if want := "session-" + string(s.ID); len(groups) < 2 || slices.Compact(groups)[0] != want {
			t.Errorf("the worker is in %v, want only %s", groups, want)
		}
	}
	text, err := ask(t, s.Ring(), fake.Child)
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []*lend.Session{s, second} {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	if !gone(child) {
		t.Errorf("process %d has outlived its session", child)
	}
	left, err := filepath.Glob("/sys/fs/cgroup/*/outboard-lendtest*-" + strconv.Itoa(os.Getpid()) + "/lease-*")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// A session that takes more of the machine's memory than it may ends with the reason, and
// the lease's other session goes on.
func TestMemoryOfTheMachine(t *testing.T) {
	h := openGrouped(t, func(o *lend.Options) { o.Sandbox.Memory = 200 << 20 })
	s, other := start(t, h), start(t, h)
	defer other.Close()
	if _, err := ask(t, s.Ring(), fake.Eat); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("the program got %v, want Exhausted", err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "memory=SIZE") {
		t.Errorf("got %v, want the remedy", err)
	}
	if got, err := ask(t, other.Ring(), "hello"); err != nil || got != "hello" {
		t.Errorf("the other session: got %q, %v", got, err)
	}
}
