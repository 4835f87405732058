package lend

import (
	"strings"
	"unicode"

	"github.com/outboard-run/outboard/internal/accel/control"
)

// maxEarly bounds the lines that are queued for a worker that is not ready yet.
const maxEarly = 32

// diagnostics is the state of forwarding the standard error of a worker's driver to the program.
// The session's lock guards it.
type diagnostics struct {
	serving bool     // the worker is ready: it accepts lines
	early   []string // lines from before
}

// reportStderr forwards a line of the worker's standard error to the log and to the program, as a
// local driver's would be seen. The lease's log rate bounds both.
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

// forwardLine sends a line to the worker, which writes it to the client's ring. The line is dropped
// if the worker has ended.
func (s *Session) forwardLine(text string) {
	_ = s.control.Send(control.Message{Type: control.TypeStderr, Text: text})
}

// printable replaces control characters, which a terminal would interpret.
func printable(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\t' && (unicode.IsControl(c) || unicode.Is(unicode.Cf, c)) {
			return '?'
		}
		return c
	}, text)
}
