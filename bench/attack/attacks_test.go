package main

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"testing"
)

// Every attack names a test that exists; one that is open names none.
func TestAttacksExist(t *testing.T) {
	for _, a := range attacks() {
		if (a.Verdict == Open) != (a.Test == "") {
			t.Errorf("%s on %s: %s: verdict %q with the test %q", a.Attacker, a.Victim, a.What, a.Verdict, a.Test)
		}
		if a.Test != "" && !hasTest(t, filepath.Join("..", "..", a.Dir), a.Test) {
			t.Errorf("%s on %s: no %s in %s", a.Attacker, a.Victim, a.Test, a.Dir)
		}
	}
}

func hasTest(t *testing.T, dir, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if parsed.Scope.Lookup(name) != nil {
			return true
		}
	}
	return false
}

func TestMarkdown(t *testing.T) {
	r := report{Machine: "m", Commit: "c", Attacks: []Attack{{Attacker: "kernel", Victim: "node's files", What: "reads", Dir: "d", Test: "TestX", Verdict: Held}}}
	const want = "| kernel | node's files | reads | held | `TestX` in `d` |\n"
	if got := r.markdown(); got[len(got)-len(want):] != want {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}
