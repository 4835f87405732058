package ollama

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/grammar"
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
	Options  runOptions            `json:"options"`
}

type message struct {
	Role      string     `json:"role"`
	Content   string     `json:"content"`
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

// runOptions are Ollama's options; the options of its runner are ignored.
type runOptions struct {
	NumPredict       *int     `json:"num_predict"`
	Temperature      *float32 `json:"temperature"`
	TopK             *int     `json:"top_k"`
	TopP             *float32 `json:"top_p"`
	MinP             float32  `json:"min_p"`
	Seed             *int64   `json:"seed"`
	Stop             []string `json:"stop"`
	RepeatPenalty    float32  `json:"repeat_penalty"`
	PresencePenalty  float32  `json:"presence_penalty"`
	FrequencyPenalty float32  `json:"frequency_penalty"`
}

// Ollama's defaults.
const (
	defaultTemperature = 0.8
	defaultTopK        = 40
	defaultTopP        = 0.9
)

// generation returns the generation that the options specify, without a prompt.
func (q *request) generation() (engine.Generation, error) {
	o := &q.Options
	g := engine.Generation{LogProbs: -1, Stop: o.Stop, Sampling: engine.Sampling{
		Temperature: defaultTemperature, TopK: defaultTopK, TopP: defaultTopP, MinP: o.MinP, Seed: rand.Uint64(),
		RepeatPenalty: o.RepeatPenalty, PresencePenalty: o.PresencePenalty, FrequencyPenalty: o.FrequencyPenalty,
	}}
	if o.NumPredict != nil {
		g.MaxTokens = max(*o.NumPredict, 0) // -1 and -2: without a limit
	}
	if o.Temperature != nil {
		g.Sampling.Temperature = *o.Temperature
	}
	if o.TopK != nil {
		g.Sampling.TopK = max(*o.TopK, 0)
	}
	if o.TopP != nil { // 0 is the likeliest token here, and all of them for engines
		g.Sampling.TopP = max(*o.TopP, math.SmallestNonzeroFloat32)
	}
	if o.Seed != nil {
		g.Sampling.Seed = uint64(*o.Seed)
	}
	if t := float64(g.Sampling.Temperature); math.IsNaN(t) || t < 0 || o.RepeatPenalty < 0 {
		return g, invalid("options: temperature and repeat_penalty must not be negative")
	}
	err := g.Check()
	switch format := bytes.TrimSpace(q.Format); {
	case err != nil:
	case len(format) == 0, string(format) == `""`, string(format) == "null":
	case string(format) == `"json"`:
		g.Grammar = grammar.Object()
	case format[0] == '{':
		g.Grammar, err = grammar.FromSchema(format)
	default:
		err = invalid(`format must be "json" or a JSON schema`)
	}
	return g, err
}

func (q *request) streamed() bool { return q.Stream == nil || *q.Stream }

// A turn is one request for text while it is being answered.
type turn struct {
	name  string
	begin time.Time
	load  time.Duration
	reply func(content string, calls []toolCall) map[string]any
	out   *lines
}

func (s *Server) generate(w http.ResponseWriter, r *http.Request) error {
	var q request
	if err := decode(r, &q); err != nil {
		return err
	}
	if q.Suffix != "" || q.Template != "" || len(q.Images) > 0 {
		return invalid("suffix, template and images are not supported")
	}
	t := s.newTurn(w, &q, func(content string, _ []toolCall) map[string]any { return map[string]any{"response": content} })
	return s.answer(r, &q, t, func(ctx context.Context, m text.Model) ([]int32, map[string]bool, error) {
		if q.Prompt == "" {
			return nil, nil, nil
		}
		if q.Raw || m.Info().ChatTemplate == "" {
			content := strings.TrimPrefix(q.System+"\n", "\n") + q.Prompt
			tokens, err := m.Tokenize(ctx, engine.Text{Content: content, Special: true, Prompt: true})
			return tokens, nil, err
		}
		messages := []text.Message{{Role: "user", Content: q.Prompt}}
		if q.System != "" {
			messages = append([]text.Message{{Role: "system", Content: q.System}}, messages...)
		}
		tokens, err := text.Prompt(ctx, m, messages, nil, nil)
		return tokens, nil, err
	})
}

func (s *Server) chat(w http.ResponseWriter, r *http.Request) error {
	var q request
	if err := decode(r, &q); err != nil {
		return err
	}
	t := s.newTurn(w, &q, func(content string, calls []toolCall) map[string]any {
		return map[string]any{"message": message{Role: "assistant", Content: content, ToolCalls: calls}}
	})
	return s.answer(r, &q, t, func(ctx context.Context, m text.Model) ([]int32, map[string]bool, error) {
		messages, err := q.conversation()
		if err != nil || len(messages) == 0 {
			return nil, nil, err
		}
		tools, err := q.toolNames()
		if err != nil {
			return nil, nil, err
		}
		tokens, err := text.Prompt(ctx, m, messages, q.Tools, nil)
		return tokens, tools, err
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
		list = append(list, text.Message{Role: m.Role, Content: m.Content, Name: m.ToolName, ToolCalls: calls})
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

func (s *Server) newTurn(w http.ResponseWriter, q *request, reply func(string, []toolCall) map[string]any) *turn {
	return &turn{name: q.Model, begin: time.Now(), reply: reply, out: newLines(w)}
}

// answer generates the text of a turn. A request without a prompt loads the model.
func (s *Server) answer(r *http.Request, q *request, t *turn, prompt func(context.Context, text.Model) ([]int32, map[string]bool, error)) error {
	g, err := q.generation()
	if err != nil {
		return err
	}
	m, release, err := s.open(r, q.Model)
	if err != nil {
		return err
	}
	defer release()
	t.load = time.Since(t.begin)
	tokens, tools, err := prompt(r.Context(), m)
	if err != nil {
		return err
	}
	if tokens == nil {
		return t.out.last(t.line("", nil, "load", engine.Usage{}))
	}
	g.Prompt = tokens
	return t.run(r.Context(), m, g, tools, q.streamed())
}

func (t *turn) run(ctx context.Context, m text.Model, g engine.Generation, tools map[string]bool, streamed bool) error {
	calls := text.Calls{Tools: tools}
	var text strings.Builder
	var made []toolCall
	reason := ""
	usage, err := m.Generate(ctx, g, func(token engine.Token) error {
		content, found := calls.Push(token.Text)
		if token.Last != "" {
			content += calls.Flush()
			reason = string(token.Last)
		}
		encoded := encodeCalls(found)
		if streamed {
			if content == "" && len(found) == 0 {
				return nil
			}
			return t.out.send(t.line(content, encoded, "", engine.Usage{}))
		}
		text.WriteString(content)
		made = append(made, encoded...)
		return nil
	})
	if err != nil {
		return t.out.fail(err)
	}
	return t.out.last(t.line(text.String(), made, reason, usage))
}

func encodeCalls(calls []text.Call) []toolCall {
	var list []toolCall
	for _, c := range calls {
		var t toolCall
		t.Function.Name, t.Function.Arguments = c.Name, c.Arguments
		list = append(list, t)
	}
	return list
}

// line returns a line of a reply; the last line has a reason and counts.
func (t *turn) line(content string, calls []toolCall, reason string, u engine.Usage) map[string]any {
	v := t.reply(content, calls)
	v["model"], v["created_at"], v["done"] = t.name, time.Now().UTC(), reason != ""
	if reason == "" {
		return v
	}
	v["done_reason"] = reason
	if reason == "load" {
		return v
	}
	v["total_duration"], v["load_duration"] = time.Since(t.begin), t.load
	v["prompt_eval_count"], v["prompt_eval_duration"] = u.PromptTokens, cmp.Or(u.Prefill, 1)
	v["eval_count"], v["eval_duration"] = u.GeneratedTokens, cmp.Or(u.Decode, 1)
	return v
}

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
