package lend

import (
	"os"
	"strconv"
	"testing"

	"github.com/outboard-run/outboard/internal/cgroup"
)

// A process that can't be in its control group does not run.
func TestProcessWithoutItsGroup(t *testing.T) {
	tree := cgroup.Open("lendprocesstest" + strconv.Itoa(os.Getpid()))
	if err := tree.Err(); err != nil {
		t.Skip(err)
	}
	defer tree.Close()
	group, err := tree.Make("gone", cgroup.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if err := group.Remove(); err != nil {
		t.Fatal(err)
	}
	s := newSpawner()
	defer s.close()
	p, err := s.start(command{args: []string{"/bin/sleep", "3600"}, dir: t.TempDir(), group: group})
	if err == nil {
		p.kill()
		t.Errorf("process %d runs outside of its group: %v", p.pid(), p.wait())
	}
}
