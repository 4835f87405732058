package e2e

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/need"
)

// machineHasIdleClass reports whether nodes of this machine have control groups with an idle class.
var machineHasIdleClass = sync.OnceValue(func() bool {
	tree := cgroup.Open("e2eidleprobe")
	can := tree.CanIdle()
	return tree.Close() == nil && can
})

// needIdleClass skips the test on a machine on which nodes get no control groups, as in most
// containers, unless they are required by their name.
func needIdleClass(t *testing.T) {
	t.Helper()
	if machineHasIdleClass() {
		return
	}
	const how = "mount control groups with cpu, memory and pids for this user; Linux 5.15"
	if strings.Contains(os.Getenv(need.Variable), "cgroup") {
		t.Fatal(how)
	}
	t.Skip(how)
}

// groupsOf returns the folders of the control groups of the node with this process number.
func groupsOf(pid int) []string {
	var found []string
	_ = filepath.WalkDir("/sys/fs/cgroup", func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.IsDir() && strings.HasPrefix(e.Name(), "outboard-") && strings.HasSuffix(e.Name(), "-"+strconv.Itoa(pid)) {
			found = append(found, path)
			return fs.SkipDir
		}
		return nil // a group that has just been removed
	})
	return found
}

// anyIdle reports whether a group below dirs is in the idle class.
func anyIdle(dirs []string) bool {
	idle := false
	for _, dir := range dirs {
		_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, _ error) error {
			if e != nil && e.Name() == "cpu.idle" {
				text, _ := os.ReadFile(path) // of a group that has just been removed: ""
				idle = idle || strings.TrimSpace(string(text)) == "1"
			}
			return nil
		})
	}
	return idle
}

// anyStopped reports whether a process below pid is stopped by a signal.
func anyStopped(pid int) bool {
	for _, p := range descendants(pid) {
		stat, _ := os.ReadFile("/proc/" + strconv.Itoa(p) + "/stat") // of a process that has ended: ""
		if strings.Contains(string(stat), ") T ") {
			return true
		}
	}
	return false
}

// longKernels is how much work a launch of testdata/launches.c is that lasts for several turns.
const longKernels = "24000"

// Nodes suspend the workers that wait for their turns in the ways that the machine has: in the idle
// class of their control groups, and by stopping them where there are no groups. Nothing remains
// of the groups of a node that has ended.
func TestWaitingWorkersAreSuspended(t *testing.T) {
	needIdleClass(t)
	for name, hidden := range map[string]bool{"in the background": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			beside(t)
			r := own(t, rig.Options{Nodes: withoutCache([]rig.Spec{{Name: "harbour", NoGroups: hidden}})})
			node := r.Node("harbour")
			pid := node.PID()
			groups := groupsOf(pid)
			if (len(groups) == 0) != hidden {
				t.Fatalf("the node has the groups %v, hidden: %v", groups, hidden)
			}
			weight := 0
			if !hidden {
				weight = weightOf(t, node)
			}
			a := count(t, through(r, "harbour", "--memory", "64MiB"), roundSeconds, longKernels)
			b := count(t, through(r, "harbour", "--memory", "64MiB"), roundSeconds, longKernels)
			eventually(t, "a worker is suspended", func() bool {
				if hidden {
					return anyStopped(pid)
				}
				return anyIdle(groups)
			})
			sums := make([]throughput, 2)
			eventually(t, "both programs compute", func() bool {
				countLaunches(t, sums, a, b)
				return sums[0].launches > 0 && sums[1].launches > 0
			})
			if !hidden && weightOf(t, node) != 8*weight {
				t.Errorf("with two leases the node's weight is %d, want 8 times %d", weightOf(t, node), weight)
			}
			a.end(t)
			b.end(t)
			if err := node.Stop(); err != nil {
				t.Error(err)
			}
			if left := groupsOf(pid); len(left) > 0 {
				t.Errorf("groups of a node that has ended: %v", left)
			}
		})
	}
}

// The next node of a folder removes the control groups of one that was killed, and the nodes of one
// machine have groups of their own.
func TestGroupsOfAKilledNode(t *testing.T) {
	beside(t)
	needIdleClass(t)
	r := own(t, rig.Options{Nodes: withoutCache(pair())})
	node, other := r.Node("harbour"), r.Node("dinghy")
	killed, running := node.PID(), other.PID()
	count(t, through(r, "harbour", "--memory", "64MiB"), roundSeconds, turns)
	if len(groupsOf(killed)) == 0 {
		t.Fatal("the node has no control groups")
	}
	if err := node.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := node.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the groups are those of the nodes that run", func() bool {
		return len(groupsOf(killed)) == 0 && len(groupsOf(node.PID())) > 0
	})
	if len(groupsOf(running)) == 0 {
		t.Error("the groups of another node were removed")
	}
}

// weightOf returns the weight of the node's own control group: cpu.weight, or cpu.shares of version 1.
func weightOf(t *testing.T, n *rig.Node) int {
	t.Helper()
	for _, dir := range groupsOf(n.PID()) {
		for _, file := range []string{"cpu.weight", "cpu.shares"} {
			text, err := os.ReadFile(filepath.Join(dir, "node", file))
			if err != nil {
				continue // the file of the other version, or another hierarchy of version 1
			}
			weight, err := strconv.Atoi(strings.TrimSpace(string(text)))
			if err != nil {
				t.Fatal(err)
			}
			return weight
		}
	}
	t.Fatal("the node has no group of its own")
	return 0
}

// A node has the weight of a lease until it has a tenant, and then that of eight.
func TestWeightOfANode(t *testing.T) {
	beside(t)
	needIdleClass(t)
	n := own(t, rig.Options{Nodes: []rig.Spec{{Name: "harbour", Devices: "none"}}}).Node("harbour")
	before := weightOf(t, n)
	deployWords(t, n, rustManifest)
	if got := weightOf(t, n); got != 8*before {
		t.Errorf("with a tenant the node's weight is %d, want 8 times %d", got, before)
	}
}
