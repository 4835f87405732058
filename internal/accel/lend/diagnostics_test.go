package lend

import "testing"

// A line that a driver wrote can't move a terminal's cursor, change its title or hide text.
func TestPrintable(t *testing.T) {
	for line, want := range map[string]string{
		"warning: a\tloop":   "warning: a\tloop",
		"\x1b]0;title\a red": "?]0;title? red",
		"\u009b31m\u202egnp": "?31m?gnp",
		"größer":             "größer",
	} {
		if got := printable(line); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}
