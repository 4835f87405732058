package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestHelpersHaveNames(t *testing.T) {
	const maxName = 15 // bytes that the kernel keeps
	for _, c := range newInternalCommand(&Env{}).Commands() {
		if name := processName(c.Name()); len(name) > maxName && name != "outboard-calibrate" { // which runs for a moment
			t.Errorf("%s is cut off in ps", name)
		}
	}
	before, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.WriteFile("/proc/self/comm", before, 0) }()
	nameProcess(&cobra.Command{Use: "model-worker"})
	if now, err := os.ReadFile("/proc/self/comm"); err != nil || strings.TrimSpace(string(now)) != "outboard-model" {
		t.Errorf("the process is named %q, error %v", now, err)
	}
}
