package cli

import (
	"strings"
	"testing"
)

// Names that others chose cannot steer a terminal: no control character, escape sequence or
// bidirectional override reaches it.
func TestTablesAreClean(t *testing.T) {
	tests := map[string]struct{ cell, want string }{
		"plain":         {"harbour/opencl/0 Größe µs", "harbour/opencl/0 Größe µs"},
		"escape":        {"a\x1b]0;title\x07b", "a\ufffd]0;title\ufffdb"},
		"cell break":    {"a\tb\nc", "a\ufffdb\ufffdc"},
		"C1 control":    {"a\u009bb", "a\ufffdb"},
		"override":      {"a\u202eb", "a\ufffdb"},
		"invalid UTF-8": {"a\xffb", "a\ufffdb"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			if err := writeTable(&out, "", []string{"NAME"}, [][]string{{test.cell}}); err != nil {
				t.Fatal(err)
			}
			if want := "NAME\n" + test.want + "\n"; out.String() != want {
				t.Errorf("got %q, want %q", out.String(), want)
			}
		})
	}
}

// Messages keep their lines and tabs, and nothing else that a terminal obeys.
func TestMessagesAreClean(t *testing.T) {
	var out strings.Builder
	if err := writeSafe(&out, "node %s\n\t%s\n", "a\x1b[2J", "b\rc"); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "node a\ufffd[2J\n\tb\ufffdc\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
