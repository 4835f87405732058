package openai

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A responseRequest is the body of responses.
type responseRequest struct {
	Model             string                     `json:"model"`
	Input             inputList                  `json:"input"`
	Instructions      string                     `json:"instructions"`
	MaxOutputTokens   *int                       `json:"max_output_tokens"`
	Tools             bounded.List[responseTool] `json:"tools"`
	ToolChoice        json.RawMessage            `json:"tool_choice"`
	ParallelToolCalls *bool                      `json:"parallel_tool_calls"`
	MaxToolCalls      *int                       `json:"max_tool_calls"` // of tools that OpenAI's service executes
	Text              responseText               `json:"text"`
	Reasoning         responseReasoning          `json:"reasoning"`
	Include           []string                   `json:"include"`
	TopLogProbs       int                        `json:"top_logprobs"`
	Stream            bool                       `json:"stream"`
	StreamOptions     *streamOptions             `json:"stream_options"`
	ServiceTier       string                     `json:"service_tier"`
	Store             *bool                      `json:"store"` // nothing is stored
	TemplateVariables json.RawMessage            `json:"chat_template_kwargs"`
	stateless
	sampling
	labels
}

// stateless are members of responses that may only have the values which describe a server without
// state. Truncation may be auto, too.
type stateless struct {
	PreviousResponse  json.RawMessage `json:"previous_response_id"`
	Conversation      json.RawMessage `json:"conversation"`
	Prompt            json.RawMessage `json:"prompt"`
	Background        json.RawMessage `json:"background"`
	Truncation        json.RawMessage `json:"truncation"`
	ContextManagement json.RawMessage `json:"context_management"`
	Moderation        json.RawMessage `json:"moderation"`
}

// A responseText determines the form of the text of a response.
type responseText struct {
	Format    *textFormat     `json:"format"`
	Verbosity json.RawMessage `json:"verbosity"`
}

// A textFormat is a format of text.format.
type textFormat struct {
	Type        string          `json:"type"`
	Name        string          `json:"name,omitempty"`
	Description *string         `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Strict      *bool           `json:"strict,omitempty"` // answers are valid in any case
}

// A responseReasoning is the member reasoning. There are no summaries: the thoughts themselves are in
// the response.
type responseReasoning struct {
	Effort          string  `json:"effort"`
	Summary         *string `json:"summary"`
	GenerateSummary *string `json:"generate_summary"`
}

// A responseTool is a tool of a response: a function, whose members are those of the tool.
type responseTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description *string         `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Strict      *bool           `json:"strict"`
}

// includes are the values of include. Only the log-probabilities have an effect: there are no tools
// of the service, and thoughts are not encrypted.
//
//nolint:gochecknoglobals // a table
var includes = []string{
	includeLogProbs, "reasoning.encrypted_content", "message.input_image.image_url", "file_search_call.results", "web_search_call.results",
	"web_search_call.action.sources", "code_interpreter_call.outputs", "computer_call_output.output.image_url",
}

const includeLogProbs = "message.output_text.logprobs"

// check refuses members that are not supported.
func (q *responseRequest) check() error {
	for _, value := range q.Include {
		if !slices.Contains(includes, value) {
			return invalid("include", fmt.Sprintf("include has %.100q, which is not supported", value))
		}
	}
	return cmp.Or(checkStream(q.Stream, q.StreamOptions), checkTop(q.TopLogProbs), checkFixed([]fixedMember{
		{"previous_response_id", q.PreviousResponse, nil, "responses are not stored: send the whole conversation as input"},
		{"conversation", q.Conversation, nil, "conversations are not stored: send the whole conversation as input"},
		{"prompt", q.Prompt, nil, "prompts are not stored: send its text as input"},
		{"background", q.Background, []string{"false"}, "responses are not stored, so a client has to wait for them"},
		{"truncation", q.Truncation, []string{`"auto"`, `"disabled"`}, "auto and disabled are supported"},
		{"context_management", q.ContextManagement, []string{"[]"}, "shorten the input"},
		{"moderation", q.Moderation, nil, "this server moderates nothing"},
		{"text.verbosity", q.Text.Verbosity, []string{`"medium"`}, "ask for the length in the instructions, or set max_output_tokens"},
	}))
}

// chat returns the conversation of the request.
func (q *responseRequest) chat() (*chat, error) {
	if err := q.check(); err != nil {
		return nil, err
	}
	c := &chat{model: q.Model, choices: 1, variables: q.TemplateVariables, effort: q.Reasoning.Effort, effortMember: "reasoning.effort"}
	c.truncates = q.truncates()
	c.single = q.ParallelToolCalls != nil && !*q.ParallelToolCalls
	var err error
	if c.tier, err = tierOf(q.ServiceTier); err != nil {
		return nil, err
	}
	if c.generation, err = q.generation(); err != nil {
		return nil, err
	}
	g := &c.generation
	if g.MaxTokens, err = tokenLimit("max_output_tokens", q.MaxOutputTokens); err != nil {
		return nil, err
	}
	if q.logprobs() {
		g.LogProbs = q.TopLogProbs
	}
	if f := q.Text.Format; f != nil {
		if g.Grammar, err = formatGrammar(f.Type, f.Schema, "text.format", "text.format"); err != nil {
			return nil, err
		}
	}
	if c.messages, err = q.messages(); err != nil {
		return nil, err
	}
	if err := q.addTools(c); err != nil {
		return nil, err
	}
	return c, g.Check()
}

// logprobs reports whether the response has the probabilities of its tokens.
func (q *responseRequest) logprobs() bool {
	return q.TopLogProbs > 0 || slices.Contains(q.Include, includeLogProbs)
}

// messages returns the conversation for the chat template.
func (q *responseRequest) messages() ([]text.Message, error) {
	if len(q.Input) == 0 {
		return nil, invalid("input", "input is missing: it is a text or a list of items")
	}
	var d dialogue
	if q.Instructions != "" {
		d.append(text.Message{Role: "system", Content: q.Instructions})
	}
	for i := range q.Input {
		if err := d.add(&q.Input[i], fmt.Sprintf("input[%d]", i)); err != nil {
			return nil, err
		}
	}
	return d.encode()
}

// addTools sets the tools of a conversation, in the form of chat/completions.
func (q *responseRequest) addTools(c *chat) error {
	var list []chatTool
	for i := range q.Tools {
		t := &q.Tools[i]
		if t.Type != "function" {
			return invalid(fmt.Sprintf("tools[%d].type", i), fmt.Sprintf("a tool of type %.100q is not supported: only functions are", t.Type))
		}
		if string(t.Parameters) == "null" {
			t.Parameters = nil
		}
		function, err := json.Marshal(templateTool{t.Name, t.Description, t.Parameters, t.Strict})
		if err != nil {
			return err
		}
		list = append(list, chatTool{Type: t.Type, Function: function})
	}
	choice, err := q.choice()
	if err != nil {
		return err
	}
	return c.setTools(list, choice)
}

// A templateTool is a function in the form that chat templates expect.
type templateTool struct {
	Name        string          `json:"name"`
	Description *string         `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"`
	Strict      *bool           `json:"strict,omitempty"`
}

// choice returns the value of tool_choice: none, auto, required, a function, or some of the functions.
func (q *responseRequest) choice() (toolChoice, error) {
	c := toolChoice{mode: "auto"}
	if len(q.ToolChoice) == 0 || json.Unmarshal(q.ToolChoice, &c.mode) == nil { // also null
		return c, nil
	}
	var value struct {
		Type  string                     `json:"type"`
		Name  string                     `json:"name"`
		Mode  string                     `json:"mode"`
		Tools bounded.List[responseTool] `json:"tools"`
	}
	err := json.Unmarshal(q.ToolChoice, &value)
	switch {
	case err == nil && value.Type == "function":
		return toolChoice{mode: "required", names: []string{value.Name}}, nil
	case err == nil && value.Type == "allowed_tools" && len(value.Tools) > 0:
		c.mode = cmp.Or(value.Mode, c.mode)
		for i := range value.Tools {
			c.names = append(c.names, value.Tools[i].Name)
		}
		return c, nil
	}
	return c, invalid("tool_choice", "tool_choice is none, auto, required, or names a function or allowed_tools")
}
