package main

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard/bench/suite"
)

// piglit returns the OpenCL tests of an installed piglit: its test programs, and the kernels that
// one of them compiles and runs.
func piglit() (tests []program) {
	runners, _ := filepath.Glob("/usr/lib/*/piglit/bin/cl-*")
	for _, path := range runners {
		name := filepath.Base(path)
		if name != "cl-program-tester" {
			tests = append(tests, piglitTest(name, path))
			continue
		}
		for _, source := range piglitSources(filepath.Dir(filepath.Dir(path))) {
			tests = append(tests, piglitTest(filepath.Base(source), path, source))
		}
	}
	return tests
}

// piglitSources returns the files that cl-program-tester runs: those that were written by hand, then
// those that piglit generates.
func piglitSources(root string) (files []string) {
	for _, folder := range []string{"tests", "generated_tests"} {
		_ = filepath.WalkDir(filepath.Join(root, folder), func(path string, _ fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err == nil && (ext == ".cl" || ext == ".program_test") {
				files = append(files, path)
			}
			return nil // a folder that is missing has no tests
		})
	}
	return files
}

func piglitTest(name string, args ...string) program {
	return program{suite: "piglit", name: name, Program: suite.Program{Name: name, Args: args}, outcomes: piglitOutcomes}
}

// piglitOutcomes parses the lines that begin with PIGLIT. The result of the whole program counts
// only if it has no sub-tests.
func piglitOutcomes(r suite.Result) map[string]string {
	outcomes, whole := map[string]string{}, ""
	for line := range strings.Lines(r.Stdout) {
		text, ok := strings.CutPrefix(line, "PIGLIT: ")
		if !ok {
			continue
		}
		var report struct {
			Result  string
			Subtest map[string]string
		}
		if json.Unmarshal([]byte(text), &report) != nil {
			continue
		}
		for name, outcome := range report.Subtest {
			outcomes[name] = worse(outcomes[name], outcome)
		}
		if report.Result != "" {
			whole = report.Result
		}
	}
	if len(outcomes) == 0 && whole != "" {
		outcomes[""] = whole
	}
	return outcomes
}

// worse returns the outcome of a sub-test that runs several times, for example on several devices:
// the first one that is not a pass.
func worse(before, now string) string {
	if before == "" || before == passed {
		return now
	}
	return before
}
