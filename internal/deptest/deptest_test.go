package deptest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const module = "github.com/outboard-run/outboard"

// house is the direction of the imports, lowest first.
func house() []Layer {
	return []Layer{
		{Name: "vocabulary", Trees: []string{"."}},
		{Name: "mechanisms", Trees: []string{
			"internal/lifecycle", "internal/wire", "internal/shm", "internal/invariant", "internal/deptest",
			"internal/unixsock", "internal/need", "internal/spell", "internal/traces", "internal/confine", "guest",
		}},
		{Name: "shared services", Trees: []string{"fabric", "internal/fabric", "internal/pool", "internal/artifact", "internal/app/manifest", "internal/api", "client"}},
		{Name: "planes", Apart: true, Trees: []string{
			"internal/accel", "internal/calls", "internal/cost", "internal/function", "internal/workflow", "internal/model",
			"internal/gateway",
		}},
		{Name: "tenants", Trees: []string{"internal/tenant"}},
		{Name: "node", Trees: []string{"internal/node"}},
		{Name: "doors", Trees: []string{"internal/cli", "outboardtest"}},
		{Name: "programs", Trees: []string{"cmd", "bench", "examples"}},
	}
}

func TestDirection(t *testing.T) {
	packages, err := Load("../..", module)
	if err != nil {
		t.Fatal(err)
	}
	if len(packages) < 2 {
		t.Fatalf("got %d packages: the sources are not where the test looks", len(packages))
	}
	for _, line := range Check(packages, house()) {
		t.Error(line)
	}
}

func TestCheck(t *testing.T) {
	tests := map[string]struct {
		pkg  Package
		want []string
	}{
		"downwards":       {Package{"internal/accel/worker", []string{".", "internal/shm", "internal/accel/control"}, true}, nil},
		"root":            {Package{".", nil, true}, nil},
		"upwards":         {Package{"internal/shm", []string{"fabric"}, true}, []string{"internal/shm imports fabric: mechanisms do not know shared services"}},
		"across planes":   {Package{"internal/accel", []string{"internal/model/queue"}, true}, []string{"internal/accel imports internal/model/queue: planes never import each other; declare a small interface, internal/node joins them"}},
		"no layer":        {Package{"internal/util", nil, true}, []string{"internal/util: belongs to no layer; add it to one in internal/deptest"}},
		"of no layer":     {Package{"client", []string{"internal/util"}, true}, []string{"client imports internal/util: it belongs to no layer"}},
		"prefix no tree":  {Package{"internal/accelerate", nil, true}, []string{"internal/accelerate: belongs to no layer; add it to one in internal/deptest"}},
		"without comment": {Package{"fabric", nil, false}, []string{"fabric: no package comment that begins with its name"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, Check([]Package{test.pkg}, house())); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
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
	write("a.go", "// Package a is documented.\npackage a\n\nimport \"fmt\"\n")
	write("b/b.go", "package b\n\nimport \"example.org/a\"\n")
	write("b/b_windows.go", "//go:build windows\n\npackage b\n\nimport \"example.org/a/c\"\n")
	write("b/b_test.go", "package b\n\nimport \"example.org/a/d\"\n")
	write("b/testdata/x.go", "package x\n")
	got, err := Load(root, "example.org/a")
	if err != nil {
		t.Fatal(err)
	}
	want := []Package{{Dir: ".", Documented: true}, {Dir: "b", Imports: []string{".", "c"}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
