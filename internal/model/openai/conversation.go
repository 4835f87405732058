package openai

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// A chat is a conversation that a model continues: what requests of chat/completions and of responses
// have in common.
type chat struct {
	model      string
	choices    int
	generation engine.Generation // the prompt comes with the model
	messages   []text.Message
	// tools are those that may be called, described the JSON of all of them for the template.
	tools     []text.Tool
	described json.RawMessage
	single    bool // the answer ends with its first call
	// truncates lets the oldest turns be dropped if the prompt is too long.
	truncates bool
	// variables are further variables of the template, effort the effort of reasoning, whose member in
	// the request is effortMember.
	variables            json.RawMessage
	effort, effortMember string
	tier                 string
}

// start returns the job that continues a conversation.
func (s *Server) start(ctx context.Context, prefix string, c *chat) (*job, error) {
	m, release, err := s.open(ctx, c.model)
	if err != nil {
		return nil, err
	}
	rendered, err := c.render(ctx, m)
	if err != nil {
		release()
		return nil, err
	}
	j := newJob(prefix, m, release, c.choices, []engine.Generation{c.generation})
	j.tier, j.single, j.tools = c.tier, c.single, map[string]bool{}
	for _, t := range c.tools {
		j.tools[t.Name] = true
	}
	if c.generation.Grammar == "" && text.Thinks(m.Info().ChatTemplate) {
		j.thoughts = text.NewThoughts(rendered)
	}
	return j, nil
}

// render sets the prompt by the template of the model, and returns its text.
func (c *chat) render(ctx context.Context, m text.Model) (rendered string, err error) {
	info := m.Info()
	if err := checkBias(&c.generation, info.Vocabulary); err != nil {
		return "", err
	}
	tools := c.described
	if !text.ReadsTools(info.ChatTemplate) {
		if len(c.tools) > 0 && c.generation.Grammar == "" {
			return "", invalid("tools", "the model's chat template has no place for tools: tool_choice can still require a call of one")
		}
		if len(c.tools) == 0 {
			tools = nil // with tool_choice none, the tools are context for templates that have a place for them
		}
	}
	variables, err := text.WithEffort(info.ChatTemplate, c.variables, c.effort)
	if err != nil {
		return "", invalid(c.effortMember, c.effortMember+": "+err.Error())
	}
	renderMessages := func(messages []text.Message) (rendered string, err error) {
		c.generation.Prompt, rendered, err = text.PromptWithText(ctx, m, messages, tools, variables)
		return rendered, err
	}
	if c.truncates {
		return c.renderShortened(info, renderMessages)
	}
	return renderMessages(c.messages)
}

// A toolChoice determines which tools may be called.
type toolChoice struct {
	mode  string   // none, auto or required
	names []string // of the tools that may be called, nil for all
}

// setTools sets the tools of a conversation, and a grammar if one of them must be called.
func (c *chat) setTools(list []chatTool, choice toolChoice) error {
	tools, err := readTools(list)
	if err != nil {
		return err
	}
	if len(list) > 0 {
		if c.described, err = json.Marshal(list); err != nil {
			return err
		}
	}
	if c.tools, err = choice.of(tools); err != nil || choice.mode != "required" {
		return err
	}
	if c.generation.Grammar, err = text.CallGrammar(c.tools); err != nil {
		return invalid("tools", err.Error())
	}
	return nil
}

// readTools returns the functions among which a request chooses.
func readTools(list []chatTool) ([]text.Tool, error) {
	if len(list) > maxTools {
		return nil, invalid("tools", fmt.Sprintf("there are %d tools: %d are accepted", len(list), maxTools))
	}
	var tools []text.Tool
	for i, t := range list {
		var tool text.Tool
		if t.Type != "function" || json.Unmarshal(t.Function, &tool) != nil || tool.Name == "" {
			return nil, invalid(fmt.Sprintf("tools[%d]", i), "a tool has the type function and a function with a name")
		}
		tools = append(tools, tool)
	}
	return tools, nil
}

// of returns the tools that may be called.
func (c *toolChoice) of(tools []text.Tool) ([]text.Tool, error) {
	switch {
	case c.mode == "none":
		return nil, nil
	case c.mode != "auto" && c.mode != "required":
		return nil, invalid("tool_choice", fmt.Sprintf("tool_choice is %.100q: none, auto, required or a function are supported", c.mode))
	case c.mode == "required" && len(tools) == 0:
		return nil, invalid("tool_choice", "tool_choice requires a function, and there are no tools")
	case c.names == nil:
		return tools, nil
	}
	var possible []text.Tool
	for _, name := range c.names {
		at := slices.IndexFunc(tools, func(t text.Tool) bool { return t.Name == name })
		if at < 0 {
			return nil, invalid("tool_choice", fmt.Sprintf("tool_choice names the function %.100q, which is not among the tools", name))
		}
		possible = append(possible, tools[at])
	}
	return possible, nil
}
