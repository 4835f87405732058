package deptest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/outboard-run/outboard"

func TestDirection(t *testing.T) {
	packages, err := Load("../..", module)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 2 {
		t.Fatalf("got %d packages: the sources are not where the test looks", len(packages))
	}
	for _, line := range Check(packages, Layers()) {
		t.Error(line)
	}
}

func TestCheckSize(t *testing.T) {
	packages := []Package{
		{Dir: "a", Imports: []string{"b", "c", "d"}, Methods: map[string]int{"Large": 3, "Small": 1, "Known": 4}},
		{Dir: "b", Imports: []string{"c", "d", "e"}},
	}
	limits := Limits{Methods: 2, Imports: 2, Exempt: map[string]string{"a.Known": "generated", "b": "joins all", "c": "once"}}
	want := []string{
		"a: imports 3 packages of the module, at most 2",
		"a.Large: 3 methods, at most 2",
		"c: is exempt without need",
	}
	if diff := cmp.Diff(want, CheckSize(packages, limits)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		dir     string
		imports []string
		want    []string
	}{
		"downwards":      {"internal/accel/worker", []string{".", "internal/shm", "internal/accel/control"}, nil},
		"root":           {".", nil, nil},
		"one group":      {"fabric", []string{"internal/fabric/shared"}, nil},
		"upwards":        {"internal/shm", []string{"fabric"}, []string{"internal/shm imports fabric: mechanisms do not know shared services"}},
		"across groups":  {"internal/accel", []string{"internal/model/queue"}, []string{"internal/accel imports internal/model/queue: groups of one layer never import each other; declare a small interface, and let a layer above join them"}},
		"no layer":       {"internal/util", nil, []string{"internal/util: belongs to no layer; add it to one in internal/deptest/layers.go"}},
		"of no layer":    {"client", []string{"internal/util"}, []string{"client imports internal/util: it belongs to no layer"}},
		"prefix no tree": {"internal/accelerate", nil, []string{"internal/accelerate: belongs to no layer; add it to one in internal/deptest/layers.go"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			p := Package{Dir: test.dir, Imports: test.imports, Synopsis: "does it"}
			if diff := cmp.Diff(test.want, Check([]Package{p}, Layers())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	want := []string{"fabric: no package comment that begins with its name"}
	if diff := cmp.Diff(want, Check([]Package{{Dir: "fabric"}}, Layers())); diff != "" {
		t.Errorf("without a comment (-want +got):\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "// Package a is documented. At length.\npackage a\n\nimport \"fmt\"\n\ntype T[X any] struct{}\n\nfunc (t *T[X]) M() { fmt.Print(t) }\n")
	write("b/b.go", "package b\n\nimport \"example.org/a\"\n")
	write("b/b_windows.go", "//go:build windows\n\npackage b\n\nimport \"example.org/a/c\"\n")
	write("b/b_test.go", "package b\n\nimport \"example.org/a/d\"\n")
	write("b/testdata/x.go", "package x\n")
	got, err := Load(root, "example.org/a")
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{
		{Dir: ".", Synopsis: "is documented", Methods: map[string]int{"T": 1}},
		{Dir: "b", Imports: []string{".", "c"}, Methods: map[string]int{}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
