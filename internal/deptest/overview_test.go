package deptest

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var rewrite = flag.Bool("rewrite", false, "rewrite the map in docs/overview.md")

const (
	overview = "../../docs/overview.md"
	mapBegin = "<!-- The map is made by: go test ./internal/deptest -run TestMap -rewrite -->\n"
	mapEnd   = "<!-- The end of the map. -->\n"
)

func TestMap(t *testing.T) {
	packages, err := Load("../..", module)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(overview)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), mapBegin)
	_, after, ok2 := strings.Cut(rest, mapEnd)
	if !ok || !ok2 {
		t.Fatalf("%s has no map between its two comments", overview)
	}
	want := before + mapBegin + "\n" + Map(packages, Layers()) + mapEnd + after
	if *rewrite {
		if err := os.WriteFile(overview, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(want, string(text)); diff != "" {
		t.Errorf("the map in docs/overview.md is not that of the sources; run `go test ./internal/deptest -run TestMap -rewrite` (-want +got):\n%s", diff)
	}
}

func TestReferences(t *testing.T) {
	documents, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(documents) == 0 {
		t.Fatalf("got %d documents (%v): they are not where the test looks", len(documents), err)
	}
	for _, document := range documents {
		wrong, err := CheckReferences(document)
		if err != nil {
			t.Error(err)
		}
		for _, line := range wrong {
			t.Error(line)
		}
	}
}

// At least twenty questions about where something is decided are answered in two steps:
// the row of the table, and the function that it links.
func TestQuestions(t *testing.T) {
	text, err := os.ReadFile(overview)
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(text), "## Where is it decided?\n")
	table, _, ok2 := strings.Cut(table, "\n## ")
	if !ok || !ok2 {
		t.Fatalf("%s has no table of questions", overview)
	}
	questions := 0
	for row := range strings.Lines(table) {
		if !strings.HasPrefix(row, "| ") || strings.HasPrefix(row, "| question") {
			continue
		}
		questions++
		if !reference.MatchString(row) {
			t.Errorf("no function answers %q", strings.TrimSpace(row))
		}
	}
	if questions < 20 {
		t.Errorf("got %d questions, want at least 20", questions)
	}
}

func TestCheckReferences(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("a.go", "package a\n\ntype T[X any] struct{}\n\nfunc (t *T[X]) M() {}\n\nfunc F() {}\n\nconst C, D = 1, 2\n")
	write("b.c", "int ring_put(void) { return 0; }\n")
	write("doc.md", "[`T`](a.go) [`T.M`](a.go) [`F()`](a.go) [`D`](a.go) [`a.go`](a.go) [`ring_put`](b.c)\n"+
		"[`M`](a.go) [`T.N`](a.go) [`F`](c.go) [`ring`](b.c) [words](none.go)\n")
	got, err := CheckReferences(filepath.Join(dir, "doc.md"))
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"`M`", "`T.N`", "`F`", "`ring`"} {
		if i >= len(got) || !strings.Contains(got[i], want) {
			t.Errorf("got %q, want a line about %s at %d", got, want, i)
		}
	}
	if len(got) != 4 {
		t.Errorf("got %d lines, want 4: %q", len(got), got)
	}
}
