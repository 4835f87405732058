package openai

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/grammar"
	"github.com/outboard-run/outboard/internal/model/text"
)

// options are the fields that chat and text completions share. TopK, MinP and RepetitionPenalty are
// vLLM's extensions.
type options struct {
	Model             string             `json:"model"`
	MaxTokens         *int               `json:"max_tokens"`
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
	N                 *int               `json:"n"`
	IgnoreEnd         bool               `json:"ignore_eos"` // vLLM's extension
	Stream            bool               `json:"stream"`
	StreamOptions     *streamOptions     `json:"stream_options"`
	ResponseFormat    *responseFormat    `json:"response_format"`
	Priority          int32              `json:"priority"` // lower first
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
	g := engine.Generation{LogProbs: -1, Stop: o.Stop, IgnoreEnd: o.IgnoreEnd, Priority: -int(o.Priority), Sampling: engine.Sampling{Temperature: 1, Seed: rand.Uint64()}}
	if err := o.checkStream(); err != nil {
		return g, err
	}
	if err := o.checkExtensions(); err != nil {
		return g, err
	}
	if n := o.count(); n < 1 || n > maxChoices {
		return g, invalid("n", fmt.Sprintf("n is %d: it must be from 1 to %d", n, maxChoices))
	}
	if o.MaxTokens != nil {
		if *o.MaxTokens < 1 {
			return g, invalid("max_tokens", fmt.Sprintf("max_tokens is %d: it must be at least 1", *o.MaxTokens))
		}
		g.MaxTokens = *o.MaxTokens
	}
	if o.Seed != nil {
		g.Sampling.Seed = uint64(*o.Seed)
	}
	if o.TopK != nil {
		g.Sampling.TopK = max(*o.TopK, 0)
	}
	for _, f := range []struct {
		name      string
		value     *float64
		low, high float64
		to        *float32
	}{
		{"temperature", o.Temperature, 0, 2, &g.Sampling.Temperature},
		{"top_p", o.TopP, 0, 1, &g.Sampling.TopP},
		{"min_p", o.MinP, 0, 1, &g.Sampling.MinP},
		{"repetition_penalty", o.RepetitionPenalty, 0.01, 10, &g.Sampling.RepeatPenalty},
		{"frequency_penalty", o.FrequencyPenalty, -2, 2, &g.Sampling.FrequencyPenalty},
		{"presence_penalty", o.PresencePenalty, -2, 2, &g.Sampling.PresencePenalty},
	} {
		if f.value == nil {
			continue
		}
		if math.IsNaN(*f.value) || *f.value < f.low || *f.value > f.high {
			return g, invalid(f.name, fmt.Sprintf("%s is %v: it must be from %v to %v", f.name, *f.value, f.low, f.high))
		}
		*f.to = float32(*f.value)
	}
	if o.TopP != nil && g.Sampling.TopP == 0 { // 0 is the likeliest token here, and all of them for engines
		g.Sampling.TopP = math.SmallestNonzeroFloat32
	}
	if err := o.constrain(&g); err != nil {
		return g, err
	}
	return g, g.Check()
}

// constrain sets the bias of tokens and the grammar.
func (o *options) constrain(g *engine.Generation) error {
	for id, bias := range o.LogitBias {
		n, err := strconv.ParseInt(id, 10, 32)
		if err != nil || bias < -100 || bias > 100 {
			return invalid("logit_bias", fmt.Sprintf("%q: %v: the name is a token's number, the bias from -100 to 100", id, bias))
		}
		if g.Sampling.Bias == nil {
			g.Sampling.Bias = map[int32]float32{}
		}
		g.Sampling.Bias[int32(n)] = float32(bias)
	}
	f := o.ResponseFormat
	if f == nil || f.Type == "text" {
		return nil
	}
	var err error
	switch {
	case f.Type == "json_object":
		g.Grammar = grammar.Object()
	case f.Type == "json_schema" && f.JSONSchema != nil && len(f.JSONSchema.Schema) > 0:
		g.Grammar, err = grammar.FromSchema(f.JSONSchema.Schema)
	case f.Type == "json_schema":
		return invalid("response_format.json_schema", "response_format.json_schema.schema is missing")
	default:
		return invalid("response_format.type", fmt.Sprintf("response_format.type is %q: text, json_object and json_schema are supported", f.Type))
	}
	if err != nil {
		return invalid("response_format", "Invalid schema for response_format: "+err.Error())
	}
	return nil
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
	Reasoning  string          `json:"reasoning_content"` // DeepSeek's and vLLM's extension
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
		content, err := m.text(fmt.Sprintf("messages[%d].content", i))
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
		list = append(list, text.Message{Role: strings.Replace(m.Role, "developer", "system", 1), Content: content, Name: m.Name, ToolCalls: calls, ToolCallID: m.ToolCallID, Reasoning: m.Reasoning})
	}
	return list, nil
}

// text returns the content, a string or an array of parts.
func (m *chatMessage) text(param string) (string, error) {
	var content *string
	if len(m.Content) == 0 || json.Unmarshal(m.Content, &content) == nil {
		if content == nil {
			return "", nil
		}
		return *content, nil
	}
	var parts bounded.List[struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}]
	if json.Unmarshal(m.Content, &parts) != nil {
		return "", invalid(param, "the content must be a string or an array of parts")
	}
	var b strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return "", invalid(param, fmt.Sprintf("a part of type %q: this model reads text only", p.Type))
		}
		b.WriteString(p.Text)
	}
	return b.String(), nil
}

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

// tools returns the tools that may be called, and their JSON for the template.
func (q *chatRequest) tools() ([]text.Tool, json.RawMessage, error) {
	if len(q.Tools) == 0 {
		return nil, nil, nil
	}
	if len(q.Tools) > maxTools {
		return nil, nil, invalid("tools", fmt.Sprintf("there are %d tools: %d are accepted", len(q.Tools), maxTools))
	}
	var list []text.Tool
	for i, t := range q.Tools {
		var tool text.Tool
		if t.Type != "function" || json.Unmarshal(t.Function, &tool) != nil || tool.Name == "" {
			return nil, nil, invalid(fmt.Sprintf("tools[%d]", i), "a tool has the type function and a function with a name")
		}
		list = append(list, tool)
	}
	encoded, err := json.Marshal(q.Tools)
	return list, encoded, err
}

// choose applies tool_choice: it returns the tools that may be called, and sets a grammar if one of
// them must be called.
func (q *chatRequest) choose(tools []text.Tool, g *engine.Generation) ([]text.Tool, error) {
	choice := "auto"
	var named struct {
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	if len(q.ToolChoice) > 0 && string(q.ToolChoice) != "null" && json.Unmarshal(q.ToolChoice, &choice) != nil {
		if json.Unmarshal(q.ToolChoice, &named) != nil || named.Function.Name == "" {
			return nil, invalid("tool_choice", "tool_choice is none, auto, required or names a function")
		}
		choice = "required"
	}
	switch choice {
	case "none":
		return nil, nil
	case "auto":
		return tools, nil
	case "required":
	default:
		return nil, invalid("tool_choice", fmt.Sprintf("tool_choice is %q: none, auto, required or a function are supported", choice))
	}
	var possible []text.Tool
	for _, t := range tools {
		if named.Function.Name == "" || t.Name == named.Function.Name {
			possible = append(possible, t)
		}
	}
	if len(possible) == 0 {
		return nil, invalid("tool_choice", "tool_choice requires a function that is not among the tools")
	}
	var err error
	if g.Grammar, err = text.CallGrammar(possible); err != nil {
		return nil, invalid("tools", err.Error())
	}
	return possible, nil
}
