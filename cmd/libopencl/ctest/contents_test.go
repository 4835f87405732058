package ctest_test

import (
	"os/exec"
	"testing"
)

// TestContents: the layer knows which contents the driver library would hold in mapped memory.
func TestContents(t *testing.T) {
	program := objects.link(t, []string{"testdata/contents.c", "../entry/contents.c", "../entry/signature.c"})
	if out, err := exec.Command(program).CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
