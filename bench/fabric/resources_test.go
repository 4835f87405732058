package main

import (
	"os"
	"os/exec"
	"slices"
	"testing"
)

// TestFamilyUsage finds the processor time of a child in that of its parent, while the child lives
// and afterwards: a node's calls are carried by a child.
func TestFamilyUsage(t *testing.T) {
	before, err := familyUsage()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.CommandContext(t.Context(), "sh", "-c", "while :; do :; done")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	if !slices.Contains(childrenOf(os.Getpid()), child.Process.Pid) {
		t.Error("the child is not among the children")
	}
	var used resources
	for used.CPU == 0 {
		if used, err = usageOf(child.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	for _, state := range []string{"alive", "ended"} {
		own, err := usage()
		if err != nil {
			t.Fatal(err)
		}
		all, err := familyUsage()
		if err != nil {
			t.Fatal(err)
		}
		if all.CPU-own.CPU < used.CPU/2 {
			t.Errorf("child %s: %v s of the parent's %v s, want at least %v s", state, all.CPU-own.CPU, all.CPU, used.CPU/2)
		}
		_ = child.Process.Kill()
		_ = child.Wait() // the error reports that it was killed
	}
	if after, err := familyUsage(); err != nil || after.CPU < before.CPU+used.CPU/2 {
		t.Errorf("%v s after %v s, %v", after.CPU, before.CPU, err)
	}
}
