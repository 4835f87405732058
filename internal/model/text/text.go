// Package text contains the common parts of the protocols for language models: sources of models,
// conversations as prompts, and calls of tools in a model's text.
package text

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/grammar"
)

// A Backend provides the text models of the pool.
type Backend interface {
	// Open returns the text model with that name, which it loads if it is not loaded yet. An error
	// of kind outboard.NotFound means that there is none. The caller calls release when it no
	// longer needs the model.
	Open(ctx context.Context, name string) (m Model, release func(), err error)
	// List describes all text models.
	List(ctx context.Context) ([]Description, error)
}

// A Model is the part of engine.TextModel that requests need.
type Model interface {
	Info() engine.Info
	Tokenize(ctx context.Context, t engine.Text) ([]int32, error)
	Render(ctx context.Context, c engine.Conversation) (string, error)
	Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error)
	Embed(ctx context.Context, tokens []int32) ([]float32, error)
}

// A Description describes a model without loading it.
type Description struct {
	Name string
	// Aliases are further names of the model. A model's own name precedes an alias, and of several
	// models with an alias the first one by name has it.
	Aliases  []string
	Modified time.Time
	// Size is the size of the file in bytes, Digest its SHA-256 in hexadecimal.
	Size   int64
	Digest string
	// Architecture is general.architecture of the file, Parameters its number of weights.
	Architecture string
	Parameters   uint64
	// Quantization is the type of most weights: "Q8_0".
	Quantization string
	ChatTemplate string
	Context      int
	// Loaded reports whether a worker has the model, Memory is its size in memory, in bytes.
	Loaded bool
	Memory int64
}

// Find returns the description of the model that a name stands for, nil if there is none.
func Find(list []Description, name string) *Description {
	var found *Description
	for i := range list {
		d := &list[i]
		if d.Name == name {
			return d
		}
		if slices.Contains(d.Aliases, name) && (found == nil || d.Name < found.Name) {
			found = d
		}
	}
	return found
}

// A Message is a message of a conversation, in the form that chat templates expect.
type Message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
	Name    string `json:"name,omitempty"`
	// ToolCalls are the calls that an assistant's message made.
	ToolCalls json.RawMessage `json:"tool_calls,omitempty"`
	// ToolCallID names the call that a tool's message answers.
	ToolCallID string `json:"tool_call_id,omitempty"`
	// Reasoning is the thoughts that preceded an assistant's message.
	Reasoning string `json:"reasoning_content,omitempty"`
}

// Prompt returns the tokens of a conversation: by the model's template, or line by line for a
// model without one.
func Prompt(ctx context.Context, m Model, messages []Message, tools, variables json.RawMessage) ([]int32, error) {
	tokens, _, err := PromptWithText(ctx, m, messages, tools, variables)
	return tokens, err
}

// PromptWithText is Prompt, and also returns the text of the tokens.
func PromptWithText(ctx context.Context, m Model, messages []Message, tools, variables json.RawMessage) ([]int32, string, error) {
	encoded, err := json.Marshal(messages)
	if err != nil {
		return nil, "", err
	}
	prompt, err := m.Render(ctx, engine.Conversation{Messages: encoded, Tools: tools, Variables: variables, Prompt: true})
	if errors.Is(err, engine.ErrNoTemplate) {
		prompt, err = plain(messages, tools), nil
	}
	if err != nil {
		return nil, "", err
	}
	tokens, err := m.Tokenize(ctx, engine.Text{Content: prompt, Special: true, Bounded: true})
	return tokens, prompt, err
}

// plain formats a conversation as a script, for models that were not trained on conversations.
func plain(messages []Message, tools json.RawMessage) string {
	var b strings.Builder
	if len(tools) > 0 {
		b.WriteString("Tools: " + string(tools) + "\n")
	}
	for _, m := range messages {
		if m.Role != "" {
			_, size := utf8.DecodeRuneInString(m.Role)
			b.WriteString(strings.ToUpper(m.Role[:size]) + m.Role[size:] + ": ")
		}
		b.WriteString(m.Content + "\n")
	}
	b.WriteString("Assistant:")
	return b.String()
}

// Normalize scales an embedding to the length 1.
func Normalize(v []float32) []float32 {
	var sum float64
	for _, x := range v {
		sum += float64(x) * float64(x)
	}
	if sum == 0 {
		return v
	}
	scale := 1 / math.Sqrt(sum)
	out := make([]float32, len(v))
	for i, x := range v {
		out[i] = float32(float64(x) * scale)
	}
	return out
}

// A Tool is a function that the model may call.
type Tool struct {
	Name       string          `json:"name"`
	Parameters json.RawMessage `json:"parameters,omitempty"`
}

// CallGrammar returns the grammar of a call of one of the tools, an object with the members name
// and arguments.
func CallGrammar(tools []Tool) (string, error) {
	var options []grammar.Option
	for _, t := range tools {
		parameters := t.Parameters
		if len(parameters) == 0 {
			parameters = json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)
		}
		name, err := json.Marshal(t.Name)
		if err != nil {
			return "", err
		}
		options = append(options, grammar.Option{Prefix: `{"name": ` + string(name) + `, "arguments": `, Schema: parameters, Suffix: "}"})
	}
	text, err := grammar.OneOf(options)
	if err != nil {
		return "", outboard.Errorf(outboard.Invalid, "tools", "parameters: %w", err)
	}
	return text, nil
}
