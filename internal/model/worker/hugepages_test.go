package worker_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/need"
)

// TestAttentionStateHasHugePages: a worker asks for huge pages for the memory that llama.cpp clears
// when it loads a model. The kernel says so by the flag "hg" of a mapping (proc_pid_smaps(5)).
func TestAttentionStateHasHugePages(t *testing.T) {
	const setting = "/sys/kernel/mm/transparent_hugepage/enabled"
	mode, err := os.ReadFile(setting)
	if bytes.Contains(mode, []byte("[always]")) {
		return // all memory may have them
	}
	need.Require(t, "huge pages", err == nil && bytes.Contains(mode, []byte("[madvise]")), "as root: echo madvise > "+setting)
	var text bytes.Buffer
	shape := gguf.Shape{Layers: 4, Width: 256, FeedForward: 32, Heads: 2, SharedHeads: 2, Context: 4096, Type: gguf.Q8_0}
	if _, err := gguf.Random(shape, 1).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	w, err := newSandboxed(t).start("llama", text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !asksForHugePages(t, w.PID()) {
		t.Error("no memory of the process asks for huge pages")
	}
}

// asksForHugePages reports whether a mapping of a process, or of one of its children, does.
func asksForHugePages(t *testing.T, pid int) bool {
	t.Helper()
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps", pid))
	if err != nil {
		t.Fatal(err)
	}
	if regexp.MustCompile(`(?m)^VmFlags:.* hg\b`).Match(maps) {
		return true
	}
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range lists {
		children, _ := os.ReadFile(path) // the thread may have ended
		for child := range strings.FieldsSeq(string(children)) {
			var n int
			if _, err := fmt.Sscan(child, &n); err == nil && asksForHugePages(t, n) {
				return true
			}
		}
	}
	return false
}
