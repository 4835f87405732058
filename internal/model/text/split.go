package text

import "github.com/outboard-run/outboard/internal/model/engine"

// A Splitter divides a model's text into thoughts, content and calls of tools while it is generated.
type Splitter struct {
	// Thoughts separates the thoughts, nil for a text without.
	Thoughts *Thoughts
	Calls    Calls
}

// A Piece is the part of an answer that a token adds. Content and calls follow the thoughts.
type Piece struct {
	Thoughts string
	Content  string
	Calls    []Call
	// Thinking reports whether the token belongs to the thoughts, or to their marks.
	Thinking bool
}

// Push returns what a token adds.
func (s *Splitter) Push(t *engine.Token) Piece {
	var p Piece
	answer := t.Text
	if s.Thoughts != nil {
		p.Thinking = s.Thoughts.within()
		p.Thoughts, answer = s.Thoughts.Push(answer)
		p.Thinking = p.Thinking || s.Thoughts.within()
		if t.Last != "" {
			thoughts, rest := s.Thoughts.Flush()
			p.Thoughts, answer = p.Thoughts+thoughts, answer+rest
		}
	}
	if p.Content, p.Calls = s.Calls.Push(answer); t.Last != "" {
		p.Content += s.Calls.Flush()
	}
	return p
}
