//go:build !wasip1

package text

import (
	"encoding/json"

	"github.com/outboard-run/outboard/guest/go/nn"
)

// Fake answers requests in native builds, for a function's own tests: it returns the texts of the
// chunks. While it is nil every call fails.
var Fake func(model string, r Request) (chunks []string, err error)

// loaded are the models of native builds, whose handles are their indexes, from 1.
var loaded []string

func load(name string) (int32, error) {
	if Fake == nil {
		return 0, &Error{Op: "load " + name, Code: nn.NotFound, Text: "no host: this is a native build; in tests set text.Fake"}
	}
	loaded = append(loaded, name)
	return int32(len(loaded)), nil
}

type stream struct{ chunks [][]byte }

func start(model int32, request []byte) (*stream, error) {
	var r Request
	if err := json.Unmarshal(request, &r.Options); err != nil {
		return nil, err
	}
	var known struct {
		Messages  []Message `json:"messages"`
		MaxTokens int       `json:"max_tokens"`
	}
	if err := json.Unmarshal(request, &known); err != nil {
		return nil, err
	}
	delete(r.Options, "messages")
	delete(r.Options, "max_tokens")
	r.Messages, r.MaxTokens = known.Messages, known.MaxTokens
	texts, err := Fake(loaded[model-1], r)
	if err != nil {
		return nil, err
	}
	s := &stream{}
	for i, t := range texts {
		choice := map[string]any{"index": 0, "delta": map[string]any{"content": t}}
		if i == len(texts)-1 {
			choice["finish_reason"] = "stop"
		}
		chunk, err := json.Marshal(map[string]any{"choices": []any{choice}})
		if err != nil {
			return nil, err
		}
		s.chunks = append(s.chunks, chunk)
	}
	return s, nil
}

func (s *stream) next() ([]byte, error) {
	if len(s.chunks) == 0 {
		return nil, nil
	}
	chunk := s.chunks[0]
	s.chunks = s.chunks[1:]
	return chunk, nil
}

func (s *stream) end() { s.chunks = nil }
