package openai

import (
	"cmp"
	"encoding/json"
	"slices"
	"sort"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// truncation is the value of a response's member truncation.
const (
	truncationAuto     = "auto"
	truncationDisabled = "disabled"
)

// truncates reports whether the request lets the server drop the oldest turns of a conversation.
func (q *responseRequest) truncates() bool {
	var value string
	return json.Unmarshal(q.Truncation, &value) == nil && value == truncationAuto
}

// shortenings returns the conversation without its oldest turns: first all of it, then without one turn
// more each time, down to the last one. A turn begins with a message of the user, so no template sees an
// answer without its question, or the output of a tool without its call. The instructions, which are the
// system's messages at the beginning, remain.
func shortenings(messages []text.Message) [][]text.Message {
	system := 0
	for system < len(messages) && messages[system].Role == "system" {
		system++
	}
	list := [][]text.Message{messages}
	for i := system + 1; i < len(messages); i++ {
		if messages[i].Role == "user" {
			list = append(list, slices.Concat(messages[:system], messages[i:]))
		}
	}
	return list
}

// fits reports whether a prompt leaves the context room for an answer: max_output_tokens, or a quarter
// of the context without it, and at most half of the context.
func (c *chat) fits(info engine.Info, err error) bool {
	if err != nil {
		return !engine.IsTooLong(err)
	}
	room := min(cmp.Or(c.generation.MaxTokens, info.Context/4), info.Context/2)
	return info.Context == 0 || len(c.generation.Prompt)+room <= info.Context
}

// renderShortened sets the prompt of the longest shortening that fits by render, and returns the text of
// the prompt. It searches by bisection, so that a long conversation is rendered a few times only.
func (c *chat) renderShortened(info engine.Info, render func([]text.Message) (string, error)) (rendered string, err error) {
	list := shortenings(c.messages)
	if rendered, err = render(list[0]); c.fits(info, err) || len(list) == 1 {
		return rendered, err
	}
	rest := list[1:]
	first := sort.Search(len(rest)-1, func(i int) bool {
		_, err := render(rest[i])
		return c.fits(info, err)
	})
	return render(rest[first])
}
