package ctest_test

import (
	"os"
	"os/exec"
	"testing"
)

// A worker can neither complete nor fail events and objects of another worker's link, nor the
// program's own.
func TestNoticesOfOtherLinks(t *testing.T) {
	program := objects.link(t, append(libraryFiles(t), "testdata/notice.c"))
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
