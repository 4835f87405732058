//go:build conformance

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// torch2 is the version of PyTorch that the tests run on beside Debian's.
const torch2 = "torch==2.6.0"

// An unmodified script finds the back end by the entry point of the package, and the tests of training
// pass, on PyTorch 2 as on Debian's. The download has some gigabytes.
func TestConformanceTorch2(t *testing.T) {
	need.Program(t, "pip3")
	project := t.TempDir() // pip writes into the folder of what it installs
	if err := os.CopyFS(project, os.DirFS("../../python")); err != nil {
		t.Fatal(err)
	}
	torchFolder = installPython(t, torch2, "numpy", project)
	t.Cleanup(func() { torchFolder = "" })
	t.Run("unmodified", func(t *testing.T) {
		lines, status := train(t, "2", "unmodified.py")
		text := strings.Join(lines, "\n")
		if status != 0 || strings.Count(text, "2.6.0") != 2 || strings.Count(text, "cpu:outboard 3.0") != 2 {
			t.Errorf("status %d:\n%s", status, text)
		}
	})
	t.Run("store", func(t *testing.T) {
		for _, backend := range []string{"gloo", "outboard"} {
			lines, status := train(t, "2", filepath.Join("..", "..", "..", "..", "internal", "cli", "testdata", "store.py"), backend)
			if text := strings.Join(lines, "\n"); status != 0 || strings.Count(text, "done") != 2 || strings.Contains(text, "is open to other machines") {
				t.Errorf("%s: status %d:\n%s", backend, status, text)
			}
		}
	})
	t.Run("modern", func(t *testing.T) { trainEqual(t, 2, "modern.py", 6) })
	for name, test := range map[string]func(*testing.T){
		"equals gloo": TestTrainingEqualsGloo, "disagree": TestRanksThatDisagreeEndWithBothLines, "failed": TestFailedCallRaisesInBackward,
		"made again": TestGroupsAreMadeAgain, "steps": TestProfileOfStepsAndErrors,
		"profile": TestProfile, "memory": TestMemoryOfKnownTensors, "lost": TestRanksEndWhenOneIsLost,
		"pipeline": TestPipelineEqualsOneProcess, "shardings": TestShardingsEqualOneProcess,
	} {
		t.Run(name, test)
	}
}
