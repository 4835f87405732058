package openai

import (
	"net/http"
	"strings"

	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/text"
)

// An outputItem is a part of a response: a message or thoughts, which have a text, or a call of a
// function.
type outputItem struct {
	ID     string `json:"id"`
	Type   string `json:"type"`
	Status string `json:"status"`
	// Of messages and thoughts. Summary, which is always empty, is of thoughts alone.
	Role    string         `json:"role,omitempty"`
	Summary *[]any         `json:"summary,omitempty"`
	Content *[]contentPart `json:"content,omitempty"`
	// Of calls.
	CallID    string  `json:"call_id,omitempty"`
	Name      string  `json:"name,omitempty"`
	Arguments *string `json:"arguments,omitempty"`
}

// A contentPart is the text of a message or of thoughts. Only messages have the lists.
type contentPart struct {
	Type        string       `json:"type"`
	Text        string       `json:"text"`
	Annotations *[]any       `json:"annotations,omitempty"`
	LogProbs    *[]tokenProb `json:"logprobs,omitempty"`
}

// A responseEvent is an event of a stream. The members that it has depend on its type.
type responseEvent struct {
	Type         string       `json:"type"`
	Sequence     int          `json:"sequence_number"`
	Response     *response    `json:"response,omitempty"`
	OutputIndex  *int         `json:"output_index,omitempty"`
	Item         *outputItem  `json:"item,omitempty"`
	ItemID       string       `json:"item_id,omitempty"`
	ContentIndex *int         `json:"content_index,omitempty"`
	Part         *contentPart `json:"part,omitempty"`
	Delta        *string      `json:"delta,omitempty"`
	Text         *string      `json:"text,omitempty"`
	LogProbs     *[]tokenProb `json:"logprobs,omitempty"`
	Name         string       `json:"name,omitempty"`
	Arguments    *string      `json:"arguments,omitempty"`
}

// An itemForm is the form of an item with a text.
type itemForm struct{ kind, prefix, part, event string }

//nolint:gochecknoglobals // constants
var (
	messageForm  = itemForm{"message", "msg_", "output_text", "response.output_text"}
	thoughtsForm = itemForm{"reasoning", "rs_", "reasoning_text", "response.reasoning_text"}
)

// A responseBuilder makes a response of the pieces of an answer.
type responseBuilder struct {
	response *response
	job      *job
	// send is called for each change of the response. It may be nil.
	send     func(*responseEvent) error
	sequence int

	// item is the message or the thoughts to which text is added, nil before the first one and after a
	// call.
	item *outputItem
	form *itemForm
	text strings.Builder
	// probs are the probabilities of the tokens of the text. The first announced of them were sent.
	probs     []tokenProb
	announced int
}

// announce sends the events before the first token.
func (b *responseBuilder) announce(int) error {
	return b.emit(&responseEvent{Type: "response.created", Response: b.response}, &responseEvent{Type: "response.in_progress", Response: b.response})
}

// emit numbers events and sends them.
func (b *responseBuilder) emit(list ...*responseEvent) error {
	for _, e := range list {
		e.Sequence = b.sequence
		b.sequence++
		if b.send == nil {
			continue
		}
		if err := b.send(e); err != nil {
			return err
		}
	}
	return nil
}

// add adds a piece of the answer.
func (b *responseBuilder) add(_ int, _ *answer, p piece) error {
	if p.token != nil && b.job.logprobs() {
		b.probs = append(b.probs, newTokenProb(p.token))
	}
	if p.Thoughts != "" {
		if err := b.addText(&thoughtsForm, p.Thoughts); err != nil {
			return err
		}
	}
	if p.Content != "" || b.form == &messageForm && b.announced < len(b.probs) {
		if err := b.addText(&messageForm, p.Content); err != nil {
			return err
		}
	}
	for _, c := range p.Calls {
		if err := b.addCall(c); err != nil {
			return err
		}
	}
	switch p.finish {
	case "":
		return nil
	case string(engine.FinishLength):
		return b.closeText(statusIncomplete)
	}
	return b.closeText(statusCompleted)
}

// addText adds text to the present item, or to a new one if that has another form.
func (b *responseBuilder) addText(f *itemForm, added string) error {
	if b.form != f {
		if err := b.openText(f); err != nil {
			return err
		}
	}
	b.text.WriteString(added)
	e := b.textEvent(f.event + ".delta")
	e.Delta = &added
	if f == &messageForm {
		probs := append([]tokenProb{}, b.probs[b.announced:]...)
		e.LogProbs, b.announced = &probs, len(b.probs)
	}
	return b.emit(e)
}

// openText ends the present item and begins another one with a text.
func (b *responseBuilder) openText(f *itemForm) error {
	if err := b.closeText(statusCompleted); err != nil {
		return err
	}
	b.form, b.item = f, &outputItem{ID: identifier(f.prefix), Type: f.kind, Status: statusInProgress, Content: &[]contentPart{}}
	part := contentPart{Type: f.part}
	if f == &messageForm {
		b.item.Role, part.Annotations, part.LogProbs = "assistant", &[]any{}, &[]tokenProb{}
	} else {
		b.item.Summary = &[]any{}
	}
	b.response.Output = append(b.response.Output, b.item)
	if err := b.emit(&responseEvent{Type: "response.output_item.added", OutputIndex: b.index(), Item: b.item}); err != nil {
		return err
	}
	*b.item.Content = append(*b.item.Content, part)
	e := b.textEvent("response.content_part.added")
	e.Part = &part
	return b.emit(e)
}

// index returns the index of the last item.
func (b *responseBuilder) index() *int {
	last := len(b.response.Output) - 1
	return &last
}

// textEvent returns an event of the text of the present item.
func (b *responseBuilder) textEvent(kind string) *responseEvent {
	return &responseEvent{Type: kind, OutputIndex: b.index(), ItemID: b.item.ID, ContentIndex: new(int)}
}

// endText sets the text of the present item, if there is one, and its status.
func (b *responseBuilder) endText(status string) *contentPart {
	if b.item == nil {
		return nil
	}
	part := &(*b.item.Content)[0]
	part.Text, b.item.Status = b.text.String(), status
	if probs := b.probs; len(probs) > 0 && b.form == &messageForm {
		part.LogProbs = &probs
	}
	return part
}

// closeText ends the present item, if there is one.
func (b *responseBuilder) closeText(status string) error {
	part := b.endText(status)
	if part == nil {
		return nil
	}
	done, partDone := b.textEvent(b.form.event+".done"), b.textEvent("response.content_part.done")
	done.Text, done.LogProbs, partDone.Part = &part.Text, part.LogProbs, part
	item := &responseEvent{Type: "response.output_item.done", OutputIndex: b.index(), Item: b.item}
	b.item, b.form, b.probs, b.announced = nil, nil, nil, 0
	b.text.Reset()
	return b.emit(done, partDone, item)
}

// addCall adds a call of a function, which is complete.
func (b *responseBuilder) addCall(c text.Call) error {
	if err := b.closeText(statusCompleted); err != nil {
		return err
	}
	b.probs = nil // of the tokens of the call
	arguments := string(c.Arguments)
	item := &outputItem{ID: identifier("fc_"), Type: "function_call", Status: statusInProgress, CallID: identifier("call_"), Name: c.Name, Arguments: new(string)}
	b.response.Output = append(b.response.Output, item)
	at := b.index()
	if err := b.emit(&responseEvent{Type: "response.output_item.added", OutputIndex: at, Item: item}); err != nil {
		return err
	}
	item.Status, item.Arguments = statusCompleted, &arguments
	return b.emit(
		&responseEvent{Type: "response.function_call_arguments.delta", OutputIndex: at, ItemID: item.ID, Delta: &arguments},
		&responseEvent{Type: "response.function_call_arguments.done", OutputIndex: at, ItemID: item.ID, Name: c.Name, Arguments: &arguments},
		&responseEvent{Type: "response.output_item.done", OutputIndex: at, Item: item},
	)
}

// complete ends the response with its answer.
func (b *responseBuilder) complete(answers []*answer) error {
	r := b.response
	r.Status, r.Usage = statusCompleted, b.job.counts(answers).response()
	if answers[0].finish == string(engine.FinishLength) {
		r.Status, r.Incomplete = statusIncomplete, &incompletion{"max_output_tokens"}
	} else {
		at := now()
		r.Completed = &at
	}
	return b.emit(&responseEvent{Type: "response." + r.Status, Response: r})
}

// fail ends the response with an error.
func (b *responseBuilder) fail(e *apiError) error {
	b.endText(statusIncomplete)
	code := "server_error"
	switch e.status {
	case http.StatusTooManyRequests:
		code = "rate_limit_exceeded"
	case http.StatusBadRequest:
		code = "invalid_prompt"
	}
	b.response.Status, b.response.Error = statusFailed, &responseError{code, e.Message}
	return b.emit(&responseEvent{Type: "response." + statusFailed, Response: b.response})
}
