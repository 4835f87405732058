package text

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
)

// The marks of the thoughts that precede a model's answer: DeepSeek's, Qwen's and others'.
const (
	thoughtsBegin = "<think>"
	thoughtsEnd   = "</think>"
)

// Variables of chat templates: whether a model thinks before it answers (Qwen and others), and how
// much (gpt-oss).
const (
	thinkVariable  = "enable_thinking"
	effortVariable = "reasoning_effort"
)

// noEffort is the effort of an answer without thoughts.
const noEffort = "none"

// Thinks reports whether a model with a chat template marks its thoughts, so that [Thoughts] can
// separate them.
func Thinks(template string) bool {
	return strings.Contains(template, thinkVariable) || strings.Contains(template, thoughtsBegin)
}

// ReadsTools reports whether the descriptions of tools become a part of the prompt. A conversation
// with a model that has no template begins with them.
func ReadsTools(template string) bool { return template == "" || strings.Contains(template, "tools") }

// WithThinking returns the variables of a template that has the model think, or not.
func WithThinking(template string, think bool) (json.RawMessage, error) {
	switch {
	case strings.Contains(template, thinkVariable):
		return json.Marshal(map[string]bool{thinkVariable: think})
	case think && !Thinks(template):
		return nil, errors.New("does not support thinking")
	case !think && Thinks(template):
		return nil, errors.New("always thinks: its template cannot turn it off")
	}
	return nil, nil
}

// WithEffort adds an effort of reasoning, such as "low", to the variables of a template. The empty
// effort is the template's default.
func WithEffort(template string, variables json.RawMessage, effort string) (json.RawMessage, error) {
	added := map[string]any{}
	switch {
	case effort == "", effort == noEffort && !strings.Contains(template, effortVariable) && !Thinks(template):
		return variables, nil
	case strings.Contains(template, effortVariable):
		added[effortVariable] = effort
	case effort == noEffort && strings.Contains(template, thinkVariable):
		added[thinkVariable] = false
	default:
		return nil, fmt.Errorf("the model's chat template has no effort %.40q", effort)
	}
	if len(variables) > 0 {
		var all map[string]any
		if err := json.Unmarshal(variables, &all); err != nil {
			return nil, err
		}
		maps.Copy(added, all)
	}
	return json.Marshal(added)
}

// Thoughts separates the thoughts before an answer from the answer, while they are generated.
type Thoughts struct {
	part thoughtsPart
	held string
}

// A thoughtsPart is a part of a model's text.
type thoughtsPart int

const (
	beforeThoughts  thoughtsPart = iota // white space
	startOfThoughts                     // white space
	withinThoughts
	afterThoughts // white space before the answer
	withinAnswer
)

// NewThoughts returns the separator for the text that follows a prompt. Some templates begin the
// thoughts.
func NewThoughts(prompt string) *Thoughts {
	if strings.HasSuffix(strings.TrimRight(prompt, " \n\r\t"), thoughtsBegin) {
		return &Thoughts{part: startOfThoughts}
	}
	return &Thoughts{}
}

// Push adds text, and returns the thoughts and the part of the answer that are now certain.
func (t *Thoughts) Push(text string) (thoughts, answer string) {
	t.held += text
	if t.part == beforeThoughts {
		t.matchMark()
	}
	if t.part == startOfThoughts {
		t.skipSpace(withinThoughts)
	}
	if t.part == withinThoughts {
		thoughts = t.certainThoughts()
	}
	if t.part == afterThoughts {
		t.skipSpace(withinAnswer)
	}
	if t.part == withinAnswer {
		answer, t.held = t.held, ""
	}
	return thoughts, answer
}

// matchMark determines whether the text begins with the mark of thoughts.
func (t *Thoughts) matchMark() {
	trimmed := strings.TrimLeft(t.held, " \n\r\t")
	rest, found := strings.CutPrefix(trimmed, thoughtsBegin)
	switch {
	case found:
		t.part, t.held = startOfThoughts, rest
	case !strings.HasPrefix(thoughtsBegin, trimmed):
		t.part = withinAnswer
	}
}

// skipSpace removes white space before the next part.
func (t *Thoughts) skipSpace(next thoughtsPart) {
	if t.held = strings.TrimLeft(t.held, " \n\r\t"); t.held != "" {
		t.part = next
	}
}

// certainThoughts removes the thoughts that are certain from the held text, and returns them.
func (t *Thoughts) certainThoughts() (thoughts string) {
	before, after, found := strings.Cut(t.held, thoughtsEnd)
	if found {
		t.part, t.held = afterThoughts, after
		return before
	}
	certain := len(t.held) - overlap(t.held, thoughtsEnd)
	thoughts, t.held = t.held[:certain], t.held[certain:]
	return thoughts
}

// within reports whether the text that was pushed last belongs to the thoughts.
func (t *Thoughts) within() bool { return t.part == startOfThoughts || t.part == withinThoughts }

// Flush returns the rest at the end of the model's text.
func (t *Thoughts) Flush() (thoughts, answer string) {
	rest := t.held
	t.held = ""
	if t.part == withinThoughts {
		return rest, ""
	}
	return "", rest
}

// overlap returns the length of the longest end of text with which mark begins.
func overlap(text, mark string) int {
	for n := min(len(mark)-1, len(text)); n > 0; n-- {
		if strings.HasSuffix(text, mark[:n]) {
			return n
		}
	}
	return 0
}
