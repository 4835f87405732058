package ollama

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A request is the body of chat and of generate.
type request struct {
	Model    string                `json:"model"`
	Prompt   string                `json:"prompt"`
	Suffix   string                `json:"suffix"`
	System   string                `json:"system"`
	Template string                `json:"template"`
	Raw      bool                  `json:"raw"`
	Images   []string              `json:"images"`
	Messages bounded.List[message] `json:"messages"`
	Tools    json.RawMessage       `json:"tools"`
	Format   json.RawMessage       `json:"format"`
	Stream   *bool                 `json:"stream"`
	Keep     *keepAlive            `json:"keep_alive"`
	Options  runOptions            `json:"options"`
	Think    *think                `json:"think"`
	LogProbs bool                  `json:"logprobs"`
	// TopLogProbs is the number of the most likely tokens that are reported with each token.
	TopLogProbs int `json:"top_logprobs"`
	// Context are the tokens of the conversation so far, from the last reply of generate.
	Context []int32 `json:"context"`
	Shift   *bool   `json:"shift"`
}

type message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
	Thinking  string     `json:"thinking,omitempty"`
	Images    []string   `json:"images,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
	ToolName  string     `json:"tool_name,omitempty"`
}

type toolCall struct {
	Function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	} `json:"function"`
}

func (q *request) streamed() bool { return q.Stream == nil || *q.Stream }

func (s *Server) generate(w http.ResponseWriter, r *http.Request) error {
	var q request
	if err := decode(r, &q); err != nil {
		return err
	}
	if err := q.checkGenerate(); err != nil {
		return err
	}
	t := s.newTurn(w, &q, func(p *part) map[string]any {
		v := map[string]any{"response": p.content}
		if p.thinking != "" {
			v["thinking"] = p.thinking
		}
		return v
	})
	return s.answer(r, &q, t, func(ctx context.Context, m text.Model) (prompt, error) {
		switch {
		case q.Prompt == "":
			return prompt{}, nil
		case q.Suffix != "":
			tokens, err := m.Tokenize(ctx, engine.Text{Content: q.Prompt, Suffix: q.Suffix, Prompt: true, Bounded: true})
			return prompt{tokens: tokens}, err
		case q.Raw || m.Info().ChatTemplate == "":
			return q.renderText(ctx, m)
		}
		messages := []text.Message{{Role: "user", Content: q.Prompt}}
		if q.System != "" {
			messages = append([]text.Message{{Role: "system", Content: q.System}}, messages...)
		}
		p, err := q.render(ctx, m, messages)
		if err == nil {
			err = q.continueContext(ctx, m, &p)
		}
		return p, err
	})
}

// checkGenerate refuses members of generate that are not supported.
func (q *request) checkGenerate() error {
	switch {
	case q.Template != "":
		return invalid("template is not supported: send the complete prompt with raw")
	case len(q.Images) > 0:
		return invalid("images: this model reads text only")
	case q.Suffix != "" && (q.Raw || q.System != "" || len(q.Context) > 0):
		return invalid("suffix is not supported beside raw, system or context")
	case q.Raw && (q.System != "" || len(q.Context) > 0):
		return invalid("raw mode does not support template, system, or context")
	}
	return nil
}

// renderText returns the prompt of a request for a raw text, or for a model without a template.
func (q *request) renderText(ctx context.Context, m text.Model) (prompt, error) {
	if _, err := q.Think.variables(q.Model, ""); err != nil {
		return prompt{}, err
	}
	var p prompt
	var err error
	content := strings.TrimPrefix(q.System+"\n", "\n") + q.Prompt
	p.tokens, err = m.Tokenize(ctx, engine.Text{Content: content, Special: true, Prompt: true, Bounded: true})
	if err == nil && !q.Raw {
		err = q.continueContext(ctx, m, &p)
	}
	return p, err
}

// continueContext makes a prompt continue the conversation of the context of the request, and has the
// reply contain the context for the next request.
func (q *request) continueContext(ctx context.Context, m text.Model, p *prompt) error {
	p.continued = true
	if len(q.Context) == 0 {
		return nil
	}
	begin, err := m.Tokenize(ctx, engine.Text{}) // the tokens with which every text begins
	if err != nil {
		return err
	}
	if len(begin) == 1 && len(p.tokens) > 0 && p.tokens[0] == begin[0] {
		p.tokens = p.tokens[1:]
	}
	p.tokens = slices.Concat(q.Context, p.tokens)
	return nil
}

// A prompt is what a text is generated from.
type prompt struct {
	tokens   []int32
	tools    map[string]bool // the names of those that may be called
	thoughts *text.Thoughts  // separates the model's thoughts, nil for a model without
	// continued reports whether the reply has the tokens of the conversation, so that another request
	// can continue it.
	continued bool
}

// render returns the prompt of a conversation.
func (q *request) render(ctx context.Context, m text.Model, messages []text.Message) (prompt, error) {
	var p prompt
	template := m.Info().ChatTemplate
	variables, err := q.Think.variables(q.Model, template)
	if err != nil {
		return p, err
	}
	if p.tools, err = q.toolNames(); err != nil {
		return p, err
	}
	if len(p.tools) > 0 && !text.ReadsTools(template) {
		return p, invalid("%q does not support tools", q.Model)
	}
	var rendered string
	p.tokens, rendered, err = text.PromptWithText(ctx, m, messages, q.Tools, variables)
	if text.Thinks(template) {
		p.thoughts = text.NewThoughts(rendered)
	}
	return p, err
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	var q request
	if err := decode(r, &q); err != nil {
		return err
	}
	t := s.newTurn(w, &q, func(p *part) map[string]any {
		return map[string]any{"message": message{Role: "assistant", Content: p.content, Thinking: p.thinking, ToolCalls: p.calls}}
	})
	return s.answer(r, &q, t, func(ctx context.Context, m text.Model) (prompt, error) {
		messages, err := q.conversation()
		if err != nil || len(messages) == 0 {
			return prompt{}, err
		}
		return q.render(ctx, m, messages)
	})
}

// conversation returns the messages for a template.
func (q *request) conversation() ([]text.Message, error) {
	var list []text.Message
	for i, m := range q.Messages {
		if len(m.Images) > 0 {
			return nil, invalid("messages[%d].images: this model reads text only", i)
		}
		var calls json.RawMessage
		if len(m.ToolCalls) > 0 {
			encoded, err := json.Marshal(m.ToolCalls)
			if err != nil {
				return nil, err
			}
			calls = encoded
		}
		list = append(list, text.Message{Role: m.Role, Content: m.Content, Name: m.ToolName, ToolCalls: calls, Reasoning: m.Thinking})
	}
	return list, nil
}

// toolNames returns the tools that may be called.
func (q *request) toolNames() (map[string]bool, error) {
	if len(q.Tools) == 0 || string(q.Tools) == "null" {
		return nil, nil
	}
	var tools []struct {
		Function text.Tool `json:"function"`
	}
	if err := json.Unmarshal(q.Tools, &tools); err != nil {
		return nil, invalid("tools: %w", err)
	}
	names := map[string]bool{}
	for i, t := range tools {
		if t.Function.Name == "" {
			return nil, invalid("tools[%d]: a tool has a function with a name", i)
		}
		names[t.Function.Name] = true
	}
	return names, nil
}

// hasPrompt reports whether there is anything to generate a text from.
func (q *request) hasPrompt() bool { return q.Prompt != "" || len(q.Messages) > 0 }

// lines writes a stream of JSON values, one on each line.
type lines struct {
	w       http.ResponseWriter
	flush   *http.ResponseController
	started bool
}

func newLines(w http.ResponseWriter) *lines {
	return &lines{w: w, flush: http.NewResponseController(w)}
}

func (l *lines) send(v any) error {
	if !l.started {
		l.started = true
		l.w.Header().Set("Content-Type", "application/x-ndjson")
		l.w.WriteHeader(http.StatusOK)
	}
	if err := json.NewEncoder(l.w).Encode(v); err != nil {
		return err
	}
	return l.flush.Flush()
}

// last sends the last line; a reply of one line is plain JSON.
func (l *lines) last(v any) error {
	if !l.started {
		l.started = true
		writeJSON(l.w, http.StatusOK, v)
		return nil
	}
	_ = l.send(v) // the client may have disconnected
	return nil
}

// fail returns the error if nothing was sent yet, and otherwise sends it as a line.
func (l *lines) fail(err error) error {
	if !l.started {
		return err
	}
	_ = l.send(map[string]string{"error": err.Error()}) // the client may have disconnected
	return nil
}
