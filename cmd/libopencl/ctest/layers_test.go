package ctest_test

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/need"
)

// layers lists the folders of the driver library, and for each layer the lower
// ones that its files may include and call.
var layers = []struct {
	name, dir string
	below     []string
}{
	{"ring", "../../libsession/ring", nil},
	{"record", "../../libsession/record", nil},
	{"session", "../../libsession/session", []string{"ring", "record"}},
	{"source", "../source", nil},
	{"objects", "../objects", []string{"session", "source", "record"}},
	{"calls", "../calls", []string{"objects", "session", "source"}},
	{"entry", "../entry", []string{"calls", "objects", "session", "source", "record"}},
}

// includeFlags returns the compiler's -I options for the library's folders.
func includeFlags() []string {
	var flags []string
	for _, l := range layers {
		flags = append(flags, "-I"+l.dir)
	}
	return flags
}

func mayUse(from, to string) bool {
	for _, l := range layers {
		if l.name == from {
			return from == to || slices.Contains(l.below, to)
		}
	}
	return false
}

// A sourceFile is one .c or .h file of the library.
type sourceFile struct{ layer, path string }

func sourceFiles(t testing.TB) []sourceFile {
	t.Helper()
	var files []sourceFile
	for _, l := range layers {
		paths, err := filepath.Glob(l.dir + "/*.[ch]")
		if err != nil || len(paths) == 0 {
			t.Fatalf("%s: %d files, %v", l.dir, len(paths), err)
		}
		for _, p := range paths {
			files = append(files, sourceFile{l.name, p})
		}
	}
	return files
}

var includeLine = regexp.MustCompile(`(?m)^#include "([^"]+)"`)

// TestLayers: no file includes a header of a higher layer, and each file's first
// comment names the file and its layer.
func TestLayers(t *testing.T) {
	files := sourceFiles(t)
	layerOf := map[string]string{}
	for _, f := range files {
		layerOf[filepath.Base(f.path)] = f.layer
	}
	for _, f := range files {
		text, err := os.ReadFile(f.path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range includeLine.FindAllSubmatch(text, -1) {
			if header := string(m[1]); !mayUse(f.layer, layerOf[header]) {
				t.Errorf("%s (%s) includes %s (%s)", f.path, f.layer, header, layerOf[header])
			}
		}
		checkComment(t, f, string(text))
	}
}

func checkComment(t *testing.T, f sourceFile, text string) {
	t.Helper()
	for strings.HasPrefix(text, "/* Code generated ") {
		_, text, _ = strings.Cut(text, "*/")
		text = strings.TrimLeft(text, "\n")
	}
	comment, _, _ := strings.Cut(text, "*/")
	if !strings.HasPrefix(comment, "/* "+filepath.Base(f.path)+": ") || !strings.Contains(comment, "Layer: "+f.layer+".") {
		t.Errorf("%s: its first comment does not give its subject and the layer %s:\n%.200s", f.path, f.layer, comment)
	}
}

// symbols are the global symbols that an object file defines and uses.
type symbols struct{ defined, used []string }

func readSymbols(object string) (symbols, error) {
	out, err := exec.Command("nm", "-P", object).Output()
	if err != nil {
		return symbols{}, err
	}
	var s symbols
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		switch f := strings.Fields(lines.Text()); {
		case len(f) < 2:
		case f[1] == "U":
			s.used = append(s.used, f[0])
		case strings.ToUpper(f[1]) == f[1]:
			s.defined = append(s.defined, f[0])
		}
	}
	return s, nil
}

// callGraph maps each file to the files whose symbols it uses.
func callGraph(t *testing.T) map[sourceFile]map[sourceFile][]string {
	t.Helper()
	all := map[sourceFile]symbols{}
	compiled := objects.compileAll(t, libraryFiles(t))
	for _, f := range sourceFiles(t) {
		if filepath.Ext(f.path) != ".c" {
			continue
		}
		s, err := readSymbols(compiled[len(all)])
		if err != nil {
			t.Fatal(err)
		}
		all[f] = s
	}
	home := map[string]sourceFile{}
	for f, s := range all {
		for _, name := range s.defined {
			home[name] = f
		}
	}
	graph := map[sourceFile]map[sourceFile][]string{}
	for f, s := range all {
		graph[f] = map[sourceFile][]string{}
		for _, name := range s.used {
			if to, ok := home[name]; ok && to != f {
				graph[f][to] = append(graph[f][to], name)
			}
		}
	}
	return graph
}

// TestCallsGoDown: no file uses a symbol of a higher layer, and no two files use
// each other, directly or through others.
func TestCallsGoDown(t *testing.T) {
	need.Program(t, "nm")
	graph := callGraph(t)
	for from, uses := range graph {
		for to, names := range uses {
			if !mayUse(from.layer, to.layer) {
				t.Errorf("%s (%s) uses %v of %s (%s)", from.path, from.layer, names, to.path, to.layer)
			}
		}
	}
	for _, path := range findCycle(graph) {
		t.Errorf("part of a cycle: %s", path)
	}
}

// findCycle returns the files that are left when files without uses are removed
// again and again: those on cycles, and those that lead to one.
func findCycle(graph map[sourceFile]map[sourceFile][]string) []string {
	left := maps.Clone(graph)
	for removed := true; removed; {
		removed = false
		for f, uses := range left {
			open := slices.ContainsFunc(slices.Collect(maps.Keys(uses)), func(to sourceFile) bool { return left[to] != nil })
			if !open {
				delete(left, f)
				removed = true
			}
		}
	}
	var paths []string
	for f := range left {
		paths = append(paths, f.path)
	}
	slices.Sort(paths)
	return paths
}
