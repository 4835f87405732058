package launch

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// Lines end with a line feed, a carriage return, or both, wherever the output is divided into writes.
func TestLinesOfOutput(t *testing.T) {
	const text = "a\n\nb\r\n\r\nc 1\rc 2\r\n\rd 10%\rd 20%\r\re\nf"
	want := []string{"a", "", "b", "", "c 1", "c 2", "d 10%", "d 20%", "e", "f"}
	for size := 1; size <= len(text); size++ {
		var got []string
		w := (&lines{emit: func(l Line) { got = append(got, string(l.Text)) }}).of(0, false)
		for chunk := range slices.Chunk([]byte(text), size) {
			if _, err := w.Write(chunk); err != nil {
				t.Fatal(err)
			}
		}
		w.flush()
		if !slices.Equal(got, want) {
			t.Errorf("in writes of %d bytes: %q, want %q", size, got, want)
		}
	}
}

// A line of any length is emitted whole, in parts of at most maxLine bytes.
func TestLongLines(t *testing.T) {
	for name, text := range map[string]string{
		"one byte a character":   strings.Repeat("x", 3*maxLine+1),
		"three bytes":            strings.Repeat("\u20ac", maxLine),
		"no text":                strings.Repeat("\x80", 2*maxLine),
		"as long as a part":      strings.Repeat("x", maxLine),
		"a byte longer than one": strings.Repeat("x", maxLine+1),
	} {
		var got strings.Builder
		w := (&lines{emit: func(l Line) {
			if len(l.Text) > maxLine || utf8.ValidString(text) && !utf8.Valid(l.Text) {
				t.Errorf("%s: a part of %d bytes, or not of whole characters", name, len(l.Text))
			}
			got.Write(l.Text)
		}}).of(0, false)
		for chunk := range slices.Chunk([]byte(text+"\n"), 32<<10) {
			_, _ = w.Write(chunk) // It never fails.
		}
		if got.String() != text {
			t.Errorf("%s: %d bytes, want the line's %d", name, got.Len(), len(text))
		}
	}
}
