package cli

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// A process that a node starts has no descriptors that the node has inherited.
func TestInheritedDescriptors(t *testing.T) {
	path := t.TempDir() + "/inherited"
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	closeInheritedOnExec()
	cmd := exec.CommandContext(t.Context(), "ls", "-l", "/proc/self/fd")
	cmd.ExtraFiles = []*os.File{os.Stdin}
	out, err := cmd.Output()
	if err != nil || strings.Contains(string(out), path) || !strings.Contains(string(out), " 3 -> ") {
		t.Errorf("%v\n%s", err, out)
	}
}
