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
	r := report{origin: origin{Machine: "m", Commit: "c"}, Attacks: []Attack{{Attacker: "kernel", Victim: "node's files", What: "reads", Dir: "d", Test: "TestX", Verdict: Held}}}
	const want = "| kernel | node's files | reads | held | `TestX` in `d` |\n"
	if got := r.markdown(); got[len(got)-len(want):] != want {
		t.Errorf("got %q, want it to end with %q", got, want)
	}
}

// -beside chooses among the victims and attackers of sessions and functions.
func TestChosen(t *testing.T) {
	for beside, want := range map[string][2]int{
		"":                  {len(attackers), len(functionAttackers)},
		"session":           {len(attackers), 0},
		"the device":        {1, 0},
		"memory bandwidth":  {1, 1},
		"the (gateway|log)": {0, 2},
	} {
		sessions, err := chosenOf(beside, attackers, attacker.name)
		if err != nil {
			t.Fatal(err)
		}
		functions, err := chosenOf(beside, functionAttackers, functionAttacker.name)
		if got := [2]int{len(sessions), len(functions)}; err != nil || got != want {
			t.Errorf("%q chooses %v, %v, want %v", beside, got, err, want)
		}
	}
	if _, err := chosenOf("(", attackers, attacker.name); err == nil {
		t.Error("an expression that is none chooses something")
	}
}
