package text_test

import (
	"testing"

	"github.com/outboard-run/outboard/internal/model/text"
)

// Thoughts are separated alike however the text is divided into tokens.
func TestThoughts(t *testing.T) {
	for _, c := range []struct{ prompt, text, thoughts, answer string }{
		{"", "<think>\na </ b</think>\n\nGood day", "a </ b", "Good day"},
		{"", " \n<think></think>Good day ", "", "Good day "},
		{"", "Good <think>day</think>", "", "Good <think>day</think>"},
		{"", "<thin", "", "<thin"},
		{"", "", "", ""},
		{"", "<think>it ends </thi", "it ends </thi", ""},
		{"user: hi <think>\n", "hm</think>Good day", "hm", "Good day"},
		{"", "<think>a</think>b</think>", "a", "b</think>"},
	} {
		for size := 1; size <= len(c.text)+1; size++ {
			s := text.NewThoughts(c.prompt)
			thoughts, answer := "", ""
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				more, next := s.Push(rest[:n])
				thoughts, answer, rest = thoughts+more, answer+next, rest[n:]
			}
			more, next := s.Flush()
			if thoughts, answer = thoughts+more, answer+next; thoughts != c.thoughts || answer != c.answer {
				t.Errorf("%q in pieces of %d: %q and %q", c.text, size, thoughts, answer)
			}
		}
	}
}
