// Package text requests answers from the language models of the pool, as a whole or in chunks.
//
// The app's manifest names the models that a function may use:
//
//	functions:
//	  ask:
//	    module: ask.wasm
//	    imports: [{model: assistant}]
package text

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"strings"

	"github.com/outboard-run/outboard/guest/go/nn"
)

// A Message is a message of a conversation. Role is "system", "user" or "assistant".
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// A Request is a conversation that a model continues.
type Request struct {
	Messages []Message
	// MaxTokens bounds the answer; 0: only the model's context bounds it.
	MaxTokens int
	// Options are further members of OpenAI's chat/completions: "temperature", "seed", "stop",
	// "response_format", "tools" and others.
	Options map[string]any
}

// Prompt returns a request with one message of the user.
func Prompt(content string) Request {
	return Request{Messages: []Message{{Role: "user", Content: content}}}
}

// encode returns the request in the host's format.
func (r *Request) encode() ([]byte, error) {
	members := maps.Clone(r.Options)
	if members == nil {
		members = map[string]any{}
	}
	members["messages"] = r.Messages
	if r.MaxTokens > 0 {
		members["max_tokens"] = r.MaxTokens
	}
	return json.Marshal(members)
}

// A Chunk is a part of an answer.
type Chunk struct {
	// Text follows the text of the earlier chunks.
	Text string
	// Finish is the reason of the answer's end: "stop", "length" or "tool_calls"; "" before the
	// last chunk.
	Finish string
	// Raw is the chat.completion.chunk in JSON, which has log-probabilities, calls of tools and the
	// usage of tokens if the request asks for them.
	Raw json.RawMessage
}

// parseChunk parses a chat.completion.chunk. Of several choices it uses the first.
func parseChunk(raw []byte) (Chunk, error) {
	var body struct {
		Choices []struct {
			Index int `json:"index"`
			Delta struct {
				Content string `json:"content"`
			} `json:"delta"`
			Finish string `json:"finish_reason"`
		} `json:"choices"`
	}
	if err := json.Unmarshal(raw, &body); err != nil {
		return Chunk{}, &Error{Op: "read a chunk", Code: nn.InvalidEncoding, Text: err.Error()}
	}
	c := Chunk{Raw: raw}
	for i := range body.Choices {
		if choice := &body.Choices[i]; choice.Index == 0 {
			c.Text += choice.Delta.Content
			c.Finish = choice.Finish
		}
	}
	return c, nil
}

// An Error is the error of a failed call. Its codes are those of wasi-nn: nn.Busy if the model
// refuses requests.
type Error struct {
	Op   string
	Code nn.Code
	Text string
}

// Error implements error.
func (e *Error) Error() string { return fmt.Sprintf("text: %s: %s", e.Op, e.Text) }

// A Model is a language model of the pool, loaded for this call of the function.
type Model struct {
	name   string
	handle int32
}

// Load returns a model by its name or alias. The error names the line missing in the manifest.
func Load(name string) (*Model, error) {
	handle, err := load(name)
	if err != nil {
		return nil, err
	}
	return &Model{name, handle}, nil
}

// Name returns the name by which the model was loaded.
func (m *Model) Name() string { return m.name }

// Complete returns the whole answer to a request. It fails if the function's deadline passes.
func (m *Model) Complete(r Request) (string, error) {
	var answer strings.Builder
	for chunk, err := range m.Chunks(r) {
		if err != nil {
			return answer.String(), err
		}
		answer.WriteString(chunk.Text)
	}
	return answer.String(), nil
}

// Chunks yields the answer to a request while it is generated. After an error it yields no more.
// Leaving the loop ends the generation.
func (m *Model) Chunks(r Request) iter.Seq2[Chunk, error] {
	return func(yield func(Chunk, error) bool) {
		s, err := m.start(&r)
		if err != nil {
			yield(Chunk{}, err)
			return
		}
		defer s.end()
		for {
			raw, err := s.next()
			if err == nil && raw == nil {
				return
			}
			var c Chunk
			if err == nil {
				c, err = parseChunk(raw)
			}
			if !yield(c, err) || err != nil {
				return
			}
		}
	}
}

func (m *Model) start(r *Request) (*stream, error) {
	encoded, err := r.encode()
	if err != nil {
		return nil, &Error{Op: "start", Code: nn.InvalidArgument, Text: err.Error()}
	}
	return start(m.handle, encoded)
}

// Complete returns the answer of a model to one message of the user.
func Complete(model, prompt string) (string, error) {
	m, err := Load(model)
	if err != nil {
		return "", err
	}
	return m.Complete(Prompt(prompt))
}
