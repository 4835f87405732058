package llama

import (
	"strings"
	"unicode/utf8"
)

// A textStream converts the bytes of tokens to text: whole UTF-8 sequences only, without stop texts
// and the text that follows them.
type textStream struct {
	stop []string
	// held are the bytes not yet returned: the beginning of a UTF-8 sequence, or of a stop text.
	held []byte
	// stopped is set once a stop text was found.
	stopped bool
}

// push adds the bytes of a token and returns the text that is now certain.
func (s *textStream) push(piece string) string {
	if s.stopped {
		return ""
	}
	s.held = append(s.held, piece...)
	complete := len(s.held) - incomplete(s.held)
	text := strings.ToValidUTF8(string(s.held[:complete]), "\ufffd")
	if at := s.find(text); at >= 0 {
		s.stopped, s.held = true, nil
		return text[:at]
	}
	withheld := s.possibleStop(text)
	rest := append([]byte(text[len(text)-withheld:]), s.held[complete:]...)
	s.held = rest
	return text[:len(text)-withheld]
}

// flush returns the rest of the text, at the end of a generation.
func (s *textStream) flush() string {
	text := strings.ToValidUTF8(string(s.held), "\ufffd")
	s.held = nil
	return text
}

// find returns the index of the first stop text, -1 for none.
func (s *textStream) find(text string) int {
	first := -1
	for _, stop := range s.stop {
		if at := strings.Index(text, stop); stop != "" && at >= 0 && (first < 0 || at < first) {
			first = at
		}
	}
	return first
}

// possibleStop returns the length of the longest end of text with which a stop text begins.
func (s *textStream) possibleStop(text string) int {
	longest := 0
	for _, stop := range s.stop {
		for n := min(len(stop)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				longest = n
			}
		}
	}
	return longest
}

// incomplete returns the length of the UTF-8 sequence at the end of b that lacks bytes, 0 if
// there is none.
func incomplete(b []byte) int {
	for n := 1; n <= min(utf8.UTFMax, len(b)); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}
