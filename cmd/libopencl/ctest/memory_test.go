package ctest_test

import (
	"os/exec"
	"strings"
	"testing"
)

// memoryProgram builds the memory objects around a pretended device.
func memoryProgram(t *testing.T) string {
	t.Helper()
	sources := []string{"testdata/memory.c", "testdata/device.c", "../../libsession/session/layout.c"}
	for _, name := range []string{
		"objects/memory", "objects/svm", "objects/coherence", "objects/object", "objects/info", "calls/buffer", "calls/format", "calls/image", "calls/transfer",
		"calls/check", "calls/map", "calls/migrate", "calls/sampler", "calls/pipe", "calls/memory",
	} {
		sources = append(sources, "../"+name+".c")
	}
	return objects.link(t, sources)
}

// TestMemory runs each case of testdata/memory.c; the sanitizers also find what was not freed.
func TestMemory(t *testing.T) {
	program := memoryProgram(t)
	names, err := exec.Command(program).Output()
	if err != nil {
		t.Fatal(err)
	}
	for name := range strings.FieldsSeq(string(names)) {
		t.Run(name, func(t *testing.T) {
			if out, err := exec.Command(program, name).CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
