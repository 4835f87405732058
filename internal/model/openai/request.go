package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/grammar"
	"github.com/outboard-run/outboard/internal/model/text"
)

// sampling are the members by which tokens are chosen, in all requests for text. TopK, MinP,
// RepetitionPenalty and IgnoreEnd are vLLM's extensions.
type sampling struct {
	Temperature       *float64           `json:"temperature"`
	TopP              *float64           `json:"top_p"`
	TopK              *int               `json:"top_k"`
	MinP              *float64           `json:"min_p"`
	RepetitionPenalty *float64           `json:"repetition_penalty"`
	FrequencyPenalty  *float64           `json:"frequency_penalty"`
	PresencePenalty   *float64           `json:"presence_penalty"`
	LogitBias         map[string]float64 `json:"logit_bias"`
	Seed              *int64             `json:"seed"`
	Stop              stringList         `json:"stop"`
	IgnoreEnd         bool               `json:"ignore_eos"`
	Priority          int32              `json:"priority"` // lower first
}

// options are the members that chat and text completions share.
type options struct {
	Model          string          `json:"model"`
	MaxTokens      *int            `json:"max_tokens"`
	N              *int            `json:"n"`
	Stream         bool            `json:"stream"`
	StreamOptions  *streamOptions  `json:"stream_options"`
	ResponseFormat *responseFormat `json:"response_format"`
	sampling
	labels
	extensions
}

type streamOptions struct {
	IncludeUsage       bool `json:"include_usage"`
	ContinuousUsage    bool `json:"continuous_usage_stats"`
	IncludeObfuscation bool `json:"include_obfuscation"`
}

type responseFormat struct {
	Type       string `json:"type"`
	JSONSchema *struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		Schema      json.RawMessage `json:"schema"`
		Strict      *bool           `json:"strict"` // answers are valid in any case
	} `json:"json_schema"`
}

// A stringList is a string or an array of strings.
type stringList []string

// UnmarshalJSON implements json.Unmarshaler.
func (l *stringList) UnmarshalJSON(b []byte) error {
	var one *string
	if json.Unmarshal(b, &one) == nil {
		if *l = nil; one != nil {
			*l = stringList{*one}
		}
		return nil
	}
	return json.Unmarshal(b, (*[]string)(l))
}

// Limits of a request.
const (
	maxChoices  = 16
	maxMessages = 4096
	maxTools    = 128
	maxTop      = 20
)

// generation returns the generation that the options specify, without a prompt.
func (o *options) generation() (engine.Generation, error) {
	g, err := o.sampling.generation()
	if err := cmp.Or(checkStream(o.Stream, o.StreamOptions), o.checkExtensions(), err); err != nil {
		return g, err
	}
	if n := o.count(); n < 1 || n > maxChoices {
		return g, invalid("n", fmt.Sprintf("n is %d: it must be from 1 to %d", n, maxChoices))
	}
	if g.MaxTokens, err = tokenLimit("max_tokens", o.MaxTokens); err != nil {
		return g, err
	}
	if g.Grammar, err = o.ResponseFormat.grammar(); err != nil {
		return g, err
	}
	return g, g.Check()
}

// generation returns a generation whose tokens are chosen by the members.
func (s *sampling) generation() (engine.Generation, error) {
	g := engine.Generation{LogProbs: -1, Stop: s.Stop, IgnoreEnd: s.IgnoreEnd, Priority: -int(s.Priority), Sampling: engine.Sampling{Temperature: 1, Seed: rand.Uint64()}}
	if s.Seed != nil {
		g.Sampling.Seed = uint64(*s.Seed)
	}
	if s.TopK != nil {
		g.Sampling.TopK = max(*s.TopK, 0)
	}
	for _, f := range []struct {
		name      string
		value     *float64
		low, high float64
		to        *float32
	}{
		{"temperature", s.Temperature, 0, 2, &g.Sampling.Temperature},
		{"top_p", s.TopP, 0, 1, &g.Sampling.TopP},
		{"min_p", s.MinP, 0, 1, &g.Sampling.MinP},
		{"repetition_penalty", s.RepetitionPenalty, 0.01, 10, &g.Sampling.RepeatPenalty},
		{"frequency_penalty", s.FrequencyPenalty, -2, 2, &g.Sampling.FrequencyPenalty},
		{"presence_penalty", s.PresencePenalty, -2, 2, &g.Sampling.PresencePenalty},
	} {
		if f.value == nil {
			continue
		}
		if math.IsNaN(*f.value) || *f.value < f.low || *f.value > f.high {
			return g, invalid(f.name, fmt.Sprintf("%s is %v: it must be from %v to %v", f.name, *f.value, f.low, f.high))
		}
		*f.to = float32(*f.value)
	}
	if s.TopP != nil && g.Sampling.TopP == 0 { // 0 is the likeliest token here, and all of them for engines
		g.Sampling.TopP = math.SmallestNonzeroFloat32
	}
	return g, s.setBias(&g)
}

// setBias sets the bias of tokens.
func (s *sampling) setBias(g *engine.Generation) error {
	for id, bias := range s.LogitBias {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil || bias < -100 || bias > 100 {
			return invalid("logit_bias", fmt.Sprintf("%q: %v: the name is a token's number, the bias from -100 to 100", id, bias))
		}
		if g.Sampling.Bias == nil {
			g.Sampling.Bias = map[int32]float32{}
		}
		g.Sampling.Bias[int32(n)] = float32(bias)
	}
	return nil
}

// tokenLimit returns the value of a member that bounds the tokens of an answer, 0 for no bound.
func tokenLimit(member string, n *int) (int, error) {
	switch {
	case n == nil:
		return 0, nil
	case *n < 1:
		return 0, invalid(member, fmt.Sprintf("%s is %d: it must be at least 1", member, *n))
	}
	return *n, nil
}

// grammar returns the grammar of a format, "" for none.
func (f *responseFormat) grammar() (string, error) {
	switch {
	case f == nil:
		return "", nil
	case f.JSONSchema == nil:
		return formatGrammar(f.Type, nil, "response_format", "response_format.json_schema")
	}
	return formatGrammar(f.Type, f.JSONSchema.Schema, "response_format", "response_format.json_schema")
}

// formatGrammar returns the grammar of a format, "" for none. member is the name of the format in the
// request, schemaMember that of the object with the schema.
func formatGrammar(kind string, schema json.RawMessage, member, schemaMember string) (string, error) {
	switch kind {
	case "text":
		return "", nil
	case "json_object":
		return grammar.Object(), nil
	case "json_schema":
	default:
		return "", invalid(member+".type", fmt.Sprintf("%s.type is %.100q: text, json_object and json_schema are supported", member, kind))
	}
	if len(schema) == 0 {
		return "", invalid(schemaMember, schemaMember+".schema is missing")
	}
	g, err := grammar.FromSchema(schema)
	if err != nil {
		return "", invalid(member, "Invalid schema for "+member+": "+err.Error())
	}
	return g, nil
}

func (o *options) count() int {
	if o.N == nil {
		return 1
	}
	return *o.N
}

// A chatRequest is the body of chat/completions.
type chatRequest struct {
	options
	Messages            bounded.List[chatMessage] `json:"messages"`
	MaxCompletionTokens *int                      `json:"max_completion_tokens"`
	LogProbs            bool                      `json:"logprobs"`
	TopLogProbs         int                       `json:"top_logprobs"`
	ReasoningEffort     string                    `json:"reasoning_effort"`
	ParallelToolCalls   *bool                     `json:"parallel_tool_calls"`
	Tools               bounded.List[chatTool]    `json:"tools"`
	ToolChoice          json.RawMessage           `json:"tool_choice"`
	TemplateVariables   json.RawMessage           `json:"chat_template_kwargs"`
	Modalities          []string                  `json:"modalities"`
	ServiceTier         string                    `json:"service_tier"`
	fixed
}

type chatTool struct {
	Type     string          `json:"type"`
	Function json.RawMessage `json:"function"`
}

type chatMessage struct {
	Role       string          `json:"role"`
	Content    json.RawMessage `json:"content"`
	Name       string          `json:"name"`
	ToolCalls  json.RawMessage `json:"tool_calls"`
	ToolCallID string          `json:"tool_call_id"`
	// ReasoningContent and Reasoning are the same extension: the first of DeepSeek, llama-server and
	// SGLang, the second of vLLM.
	ReasoningContent string `json:"reasoning_content"`
	Reasoning        string `json:"reasoning"`
	// FunctionCall is the older form of ToolCalls.
	FunctionCall json.RawMessage `json:"function_call"`
}

// messages returns the conversation for the chat template.
func (q *chatRequest) messages() ([]text.Message, error) {
	for _, m := range q.Modalities {
		if m != "text" {
			return nil, invalid("modalities", fmt.Sprintf("%.100q: this model writes text only", m))
		}
	}
	if len(q.Messages) == 0 || len(q.Messages) > maxMessages {
		return nil, invalid("messages", fmt.Sprintf("there are %d messages: from 1 to %d are accepted", len(q.Messages), maxMessages))
	}
	var list []text.Message
	for i, m := range q.Messages {
		content, err := textOf(m.Content, fmt.Sprintf("messages[%d].content", i), "text")
		if err != nil {
			return nil, err
		}
		if m.Role == "" {
			return nil, invalid(fmt.Sprintf("messages[%d].role", i), "a message has no role")
		}
		if len(m.FunctionCall) > 0 && string(m.FunctionCall) != "null" {
			return nil, invalid(fmt.Sprintf("messages[%d].function_call", i), "function_call is not supported: use tool_calls")
		}
		calls, err := templateCalls(m.ToolCalls)
		if err != nil {
			return nil, invalid(fmt.Sprintf("messages[%d].tool_calls", i), err.Error())
		}
		list = append(list, text.Message{Role: templateRole(m.Role), Content: content, Name: m.Name, ToolCalls: calls, ToolCallID: m.ToolCallID, Reasoning: cmp.Or(m.ReasoningContent, m.Reasoning)})
	}
	return list, nil
}

// textOf returns the text of a content, a string or an array of parts of the given types. param is its
// name in the request.
func textOf(content json.RawMessage, param string, types ...string) (string, error) {
	var whole *string
	if len(content) == 0 || json.Unmarshal(content, &whole) == nil {
		if whole == nil {
			return "", nil
		}
		return *whole, nil
	}
	var parts bounded.List[struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}]
	if json.Unmarshal(content, &parts) != nil {
		return "", invalid(param, "the content must be a string or an array of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if !slices.Contains(types, p.Type) {
			return "", invalid(param, fmt.Sprintf("a part of type %.100q: this model reads text only", p.Type))
		}
		b.WriteString(p.Text + p.Refusal)
	}
	return b.String(), nil
}

// templateRole returns the name of a role for chat templates.
func templateRole(role string) string { return strings.Replace(role, "developer", "system", 1) }

// templateCalls returns earlier calls with their arguments as objects, which templates expect; in
// OpenAI's interface the arguments are strings.
func templateCalls(calls json.RawMessage) (json.RawMessage, error) {
	if len(calls) == 0 || string(calls) == "null" {
		return nil, nil
	}
	var list []map[string]any
	if err := json.Unmarshal(calls, &list); err != nil {
		return nil, err
	}
	for _, call := range list {
		function, _ := call["function"].(map[string]any)
		encoded, isText := function["arguments"].(string)
		var arguments any
		if isText && json.Unmarshal([]byte(encoded), &arguments) == nil {
			function["arguments"] = arguments
		}
	}
	return json.Marshal(list)
}

// choice returns the value of tool_choice.
func (q *chatRequest) choice() (toolChoice, error) {
	c := toolChoice{mode: "auto"}
	if len(q.ToolChoice) == 0 || json.Unmarshal(q.ToolChoice, &c.mode) == nil { // also null
		return c, nil
	}
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if json.Unmarshal(q.ToolChoice, &named) != nil || named.Function.Name == "" {
		return c, invalid("tool_choice", "tool_choice is none, auto, required or names a function")
	}
	return toolChoice{mode: "required", names: []string{named.Function.Name}}, nil
}
