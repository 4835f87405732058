package lend

import (
	"strings"
	"unicode"

	"github.com/outboard-run/outboard/internal/accel/control"
)

// maxEarly bounds the lines that are kept for a worker that is not ready yet.
const maxEarly = 32

// diagnostics is what a worker's driver wrote to standard error, on its way to the program. The
// session's lock guards it.
type diagnostics struct {
	serving bool     // the worker is ready: it takes lines
	early   []string // those from before
}

// reportStderr reports a line of the worker's standard error in the log and to the program, which a
// local driver's would reach, too. Both are bounded by what the lease may log.
func (s *Session) reportStderr(line string) {
	text := s.log(control.Message{Level: "stderr", Text: line})
	if text = printable(text); text == "" {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serving {
		s.forwardLine(text)
	} else if len(s.early) < maxEarly {
		s.early = append(s.early, text)
	}
}

// forwardEarly sends the lines from before the worker was ready.
func (s *Session) forwardEarly() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, text := range s.early {
		s.forwardLine(text)
	}
	s.serving, s.early = true, nil
}

// forwardLine passes a line to the worker, which has the client's ring. A worker that has ended needs
// none.
func (s *Session) forwardLine(text string) {
	_ = s.control.Send(control.Message{Type: control.TypeStderr, Text: text})
}

// printable replaces what a terminal would execute.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
			return '?'
		}
		return c
	}, text)
}
