package main

import (
	"os"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/packaging/modules"
)

// NOTICE names every module that is linked into the program, with its licence.
func TestNoticeIsUpToDate(t *testing.T) {
	want, err := notice(t.Context(), "../../cmd/outboard")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile("../../NOTICE")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("NOTICE differs from the modules that are linked: run `make notices`")
	}
}

func TestFormat(t *testing.T) {
	got := format([]modules.Module{
		{Path: "a.example/a", Licence: "MIT", Texts: []modules.Text{{Name: "LICENSE", Content: "one"}}},
		{Path: "b.example/b", Licence: "MIT", Texts: []modules.Text{{Name: "LICENSE", Content: "one"}, {Name: "NOTICE", Content: "two"}}},
	})
	for _, want := range []string{"  MIT                                a.example/a\n", "a.example/a LICENSE\nb.example/b LICENSE\n\none\n", "b.example/b NOTICE\n\ntwo\n"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is not in:\n%s", want, got)
		}
	}
	if strings.Count(got, "one\n") != 1 {
		t.Errorf("a text is there twice:\n%s", got)
	}
}
