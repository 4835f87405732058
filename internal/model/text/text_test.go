package text_test

import (
	"testing"

	"github.com/outboard-run/outboard/internal/model/text"
)

func TestFind(t *testing.T) {
	list := []text.Description{{Name: "c", Aliases: []string{"x", "b"}}, {Name: "a", Aliases: []string{"x"}}, {Name: "b"}}
	for name, want := range map[string]string{"a": "a", "b": "b", "x": "a", "y": ""} {
		got := ""
		if d := text.Find(list, name); d != nil {
			got = d.Name
		}
		if got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
}
