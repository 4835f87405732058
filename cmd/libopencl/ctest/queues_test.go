package ctest_test

import (
	"os/exec"
	"testing"
)

// TestQueues: the layer's table has what the program requested for each of its queues, and forgets
// released ones.
func TestQueues(t *testing.T) {
	program := objects.link(t, []string{"testdata/queues.c", "../entry/queues.c"})
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
