package openai

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/text"
)

// An inputList is the input of a response: a list of items, or a text, which stands for the message
// of a user.
type inputList []inputItem

// UnmarshalJSON implements json.Unmarshaler.
func (l *inputList) UnmarshalJSON(b []byte) error {
	if strings.HasPrefix(string(b), `"`) {
		*l = inputList{{Role: "user", Content: append(json.RawMessage(nil), b...)}}
		return nil
	}
	return json.Unmarshal(b, (*bounded.List[inputItem])(l))
}

// An inputItem is a message, a call of a function, the output of one, or the thoughts that preceded
// an answer.
type inputItem struct {
	Type      string          `json:"type"`
	Role      string          `json:"role"`
	Content   json.RawMessage `json:"content"`
	CallID    string          `json:"call_id"`
	Name      string          `json:"name"`
	Arguments string          `json:"arguments"`
	Output    json.RawMessage `json:"output"`
}

// A templateCall is a call of a function in the form that chat templates expect, with its arguments
// as an object.
type templateCall struct {
	ID       string           `json:"id"`
	Type     string           `json:"type"`
	Function templateFunction `json:"function"`
}

type templateFunction struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments"`
}

// A dialogue collects the items of an input as messages for a chat template. What the assistant
// thought, wrote and called is one message, unless an item of another role is in between.
type dialogue struct {
	messages []text.Message
	calls    [][]templateCall  // of the message with the same index
	called   map[string]string // names of functions, by the identifiers of their calls
}

func (d *dialogue) append(m text.Message) {
	d.messages, d.calls = append(d.messages, m), append(d.calls, nil)
}

// last returns the last message if it is the assistant's, and otherwise appends one.
func (d *dialogue) last() (index int) {
	if n := len(d.messages); n > 0 && d.messages[n-1].Role == "assistant" {
		return n - 1
	}
	d.append(text.Message{Role: "assistant"})
	return len(d.messages) - 1
}

// add appends an item; param is its name in the request.
func (d *dialogue) add(item *inputItem, param string) error {
	switch item.Type {
	case "", "message":
		return d.addMessage(item, param)
	case "reasoning":
		return d.addThoughts(item, param)
	case "function_call":
		return d.addCall(item, param)
	case "function_call_output":
		return d.addOutput(item, param)
	case "item_reference":
		return invalid(param, "items are not stored: send the item itself instead of a reference to it, as clients do that are told that nothing is stored (store: false)")
	}
	return invalid(param+".type", fmt.Sprintf("an item of type %.100q: message, reasoning, function_call and function_call_output are supported", item.Type))
}

func (d *dialogue) addMessage(item *inputItem, param string) error {
	if item.Role == "" {
		return invalid(param+".role", "a message has no role")
	}
	content, err := textOf(item.Content, param+".content", "input_text", "output_text", "refusal")
	if err != nil {
		return err
	}
	if n := len(d.messages); n > 0 && item.Role == "assistant" {
		if m := &d.messages[n-1]; m.Role == "assistant" && m.Content == "" && len(d.calls[n-1]) == 0 {
			m.Content = content // of the thoughts before it
			return nil
		}
	}
	d.append(text.Message{Role: templateRole(item.Role), Content: content})
	return nil
}

func (d *dialogue) addThoughts(item *inputItem, param string) error {
	thoughts, err := textOf(item.Content, param+".content", "reasoning_text")
	if err == nil && thoughts != "" { // otherwise they are encrypted, or only summarized
		d.append(text.Message{Role: "assistant", Reasoning: thoughts})
	}
	return err
}

func (d *dialogue) addCall(item *inputItem, param string) error {
	if item.Name == "" || item.CallID == "" {
		return invalid(param, "a function_call has a name and a call_id")
	}
	arguments := json.RawMessage(item.Arguments)
	if !json.Valid(arguments) {
		encoded, err := json.Marshal(item.Arguments)
		if err != nil {
			return err
		}
		arguments = encoded
	}
	at := d.last()
	d.calls[at] = append(d.calls[at], templateCall{item.CallID, "function", templateFunction{item.Name, arguments}})
	if d.called == nil {
		d.called = map[string]string{}
	}
	d.called[item.CallID] = item.Name
	return nil
}

func (d *dialogue) addOutput(item *inputItem, param string) error {
	name, found := d.called[item.CallID]
	if !found {
		return invalid(param, fmt.Sprintf("No tool call found for function call output with call_id %.100s.", item.CallID))
	}
	output, err := textOf(item.Output, param+".output", "input_text")
	if err == nil {
		d.append(text.Message{Role: "tool", Content: output, Name: name, ToolCallID: item.CallID})
	}
	return err
}

// encode returns the messages with their calls.
func (d *dialogue) encode() ([]text.Message, error) {
	for i, calls := range d.calls {
		if len(calls) == 0 {
			continue
		}
		encoded, err := json.Marshal(calls)
		if err != nil {
			return nil, err
		}
		d.messages[i].ToolCalls = encoded
	}
	return d.messages, nil
}
