package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/bench/suite"
)

func TestPiglitOutcomes(t *testing.T) {
	for name, test := range map[string]struct {
		stdout string
		want   map[string]string
	}{
		"whole":     {"## Test\nPIGLIT: {\"result\": \"pass\" }\n", map[string]string{"": "pass"}},
		"sub-tests": {"PIGLIT: {\"subtest\": {\"a\" : \"pass\"}}\nPIGLIT: {\"subtest\": {\"b\" : \"fail\"}}\nPIGLIT: {\"result\": \"fail\" }\n", map[string]string{"a": "pass", "b": "fail"}},
		"repeated":  {"PIGLIT: {\"subtest\": {\"a\" : \"fail\"}}\nPIGLIT: {\"subtest\": {\"a\" : \"pass\"}}\n", map[string]string{"a": "fail"}},
		"crashed":   {"PIGLIT: {\"sub", map[string]string{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(piglitOutcomes(suite.Result{Stdout: test.stdout}), test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestCTSOutcomes(t *testing.T) {
	const stdout = `Compute Device Name = cpu
hostptr...
hostptr passed
if...
ERROR: it FAILED
if FAILED
svm test not supported
queue skipped (requires at least version OpenCL 2.0, but the device reports OpenCL 1.2)
PASSED 1 of 2 tests.
`
	want := map[string]string{"hostptr": "pass", "if": "fail", "svm": "skip", "queue": "skip"}
	if diff := cmp.Diff(ctsOutcomes(suite.Result{Stdout: stdout}), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

// writeProgram writes an executable shell script.
func writeProgram(t *testing.T, folder, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(folder, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
}

// A sub-test that a borrowed device does not pass, or does not reach, is in the document as one that
// differs, and one that fails locally as well is not.
func TestRun(t *testing.T) {
	folder := t.TempDir()
	writeProgram(t, folder, "test_basic", `echo "one passed"; echo "two FAILED"; [ "$1" = borrowed ] || echo "three passed"`)
	writeProgram(t, folder, "notes", "exit 1")
	tests, err := cts(folder)
	if err != nil || len(tests) != 1 {
		t.Fatalf("%d programs, %v", len(tests), err)
	}
	borrowed := func(ctx context.Context, name string, _ ...string) *exec.Cmd {
		return exec.CommandContext(ctx, name, "borrowed")
	}
	rows := runAll(t.Context(), tests, [...]suite.Launcher{suite.Local, suite.Local, borrowed})
	want := []row{
		{"OpenCL-CTS", "test_basic", "one", [...]string{"pass", "pass", "pass"}},
		{"OpenCL-CTS", "test_basic", "three", [...]string{"pass", "pass", "none"}},
		{"OpenCL-CTS", "test_basic", "two", [...]string{"fail", "fail", "fail"}},
	}
	if diff := cmp.Diff(rows, want, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
	var document strings.Builder
	if err := writeDocument(&document, 2, rows); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{
		"| OpenCL-CTS | 3 | 2 | 2 | 1 |\n\nThe run was ended early: 1 of 2 programs ran.\n",
		"not borrowed\n\n| suite | program | sub-test | local | shared memory | network |\n|---|---|---|---|---|---|\n" +
			"| OpenCL-CTS | test_basic | three | pass | pass | none |\n\n## All",
	} {
		if !strings.Contains(document.String(), line) {
			t.Errorf("%q is missing in:\n%s", line, document.String())
		}
	}
	if err := (&conformance{out: t.TempDir()}).report(1, rows); err == nil {
		t.Error("a difference is not reported")
	}
	if _, err := cts(t.TempDir()); err == nil {
		t.Error("a folder without programs is accepted")
	}
}
