package llama

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/ardanlabs/jinja"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// renderTime bounds a chat template, which comes with the model's file and may not end.
const renderTime = 10 * time.Second

type templateResult struct {
	compiled *jinja.Template
	err      error
}

// Render returns the prompt of a conversation.
func (m *textModel) Render(ctx context.Context, c engine.Conversation) (string, error) {
	if m.info.ChatTemplate == "" {
		return "", engine.ErrNoTemplate
	}
	m.templateOnce.Do(func() {
		m.template.compiled, m.template.err = jinja.Compile(m.info.ChatTemplate)
	})
	if m.template.err != nil {
		return "", outboard.Errorf(outboard.Invalid, "chat template", "%w", m.template.err)
	}
	variables, err := m.variables(c)
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, renderTime)
	defer cancel()
	type result struct {
		text string
		err  error
	}
	// The renderer cannot be interrupted: a template that never ends occupies a goroutine of this
	// worker, whose memory is limited.
	done := make(chan result, 1)
	go func() {
		text, err := m.template.compiled.Render(variables)
		done <- result{text, err}
	}()
	select {
	case r := <-done:
		if r.err != nil {
			return "", outboard.Errorf(outboard.Invalid, "chat template", "%w", r.err)
		}
		return r.text, nil
	case <-ctx.Done():
		return "", outboard.Errorf(outboard.Exhausted, "chat template", "it did not end in time: %w", ctx.Err())
	}
}

// variables returns the variables that the template may refer to.
func (m *textModel) variables(c engine.Conversation) (map[string]any, error) {
	v := map[string]any{"add_generation_prompt": c.Prompt, "bos_token": m.specialToken("bos"), "eos_token": m.specialToken("eos"), "tools": nil}
	for _, field := range []struct {
		name string
		text json.RawMessage
	}{{"messages", c.Messages}, {"tools", c.Tools}} {
		if len(field.text) == 0 {
			continue
		}
		var value any
		if err := json.Unmarshal(field.text, &value); err != nil {
			return nil, outboard.Errorf(outboard.Invalid, field.name, "%w", err)
		}
		v[field.name] = value
	}
	if len(c.Variables) > 0 {
		var more map[string]any
		if err := json.Unmarshal(c.Variables, &more); err != nil {
			return nil, outboard.Errorf(outboard.Invalid, "chat_template_kwargs", "%w", err)
		}
		for name, value := range more {
			if _, reserved := v[name]; !reserved {
				v[name] = value
			}
		}
	}
	return v, nil
}

// specialToken returns the text of the token that the header names, "" for none.
func (m *textModel) specialToken(name string) string {
	id, ok := m.header.Number(fmt.Sprintf("tokenizer.ggml.%s_token_id", name))
	if !ok || id >= uint64(m.info.Vocabulary) {
		return ""
	}
	return goString(m.lib.call(fnTokenText, m.vocabulary, uintptr(id)))
}
