package main

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/bench/suite"
)

// shorter has the arguments of programs that would otherwise take hours: fewer values of each
// function, the nearest filter of images. They are those of the suite's own short lists.
var shorter = map[string][]string{
	"test_allocations":       {"single", "5", "all"},
	"test_bruteforce":        {"-w"},
	"test_half":              {"-w"},
	"test_conversions":       {"-w"},
	"test_image_streams":     {"CL_FILTER_NEAREST"},
	"test_integer_ops":       {"integer_*", "quick_*"},
	"test_thread_dimensions": {"quick*"},
}

// cts returns the programs of OpenCL-CTS in a folder, which may contain the suite's own folders.
func cts(folder string) (tests []program, err error) {
	if folder == "" {
		return nil, nil
	}
	err = filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !isProgram(entry) {
			return err
		}
		name := filepath.Base(path)
		p := suite.Program{Name: name, Args: append([]string{path}, shorter[name]...)}
		tests = append(tests, program{suite: "OpenCL-CTS", name: name, Program: p, outcomes: ctsOutcomes})
		return nil
	})
	if err == nil && len(tests) == 0 {
		err = errors.New("no programs named test_*")
	}
	if err != nil {
		return nil, fmt.Errorf("OpenCL-CTS in %s: %w", folder, err)
	}
	slices.SortFunc(tests, func(a, b program) int { return strings.Compare(a.name, b.name) })
	return tests, nil
}

func isProgram(entry fs.DirEntry) bool {
	info, err := entry.Info()
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o100 != 0 && strings.HasPrefix(entry.Name(), "test_") && filepath.Ext(entry.Name()) == ""
}

// ctsLine matches the line with which a program reports the outcome of a sub-test.
var ctsLine = regexp.MustCompile(`(?m)^(\w+) (passed|FAILED|test not supported|test currently not implemented|skipped)\b`)

func ctsOutcomes(r suite.Result) map[string]string {
	outcomes := map[string]string{}
	for _, m := range ctsLine.FindAllStringSubmatch(r.Stdout+"\n"+r.Stderr, -1) {
		switch m[2] {
		case "passed":
			outcomes[m[1]] = worse(outcomes[m[1]], passed)
		case "FAILED":
			outcomes[m[1]] = worse(outcomes[m[1]], failed)
		default:
			outcomes[m[1]] = worse(outcomes[m[1]], skipped)
		}
	}
	return outcomes
}
