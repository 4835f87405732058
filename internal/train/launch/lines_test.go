package launch

import (
	"slices"
	"testing"
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
