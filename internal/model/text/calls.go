package text

import (
	"bytes"
	"encoding/json"
	"strings"
)

// A Call is a call of a tool. Arguments is a JSON object.
type Call struct {
	Name      string
	Arguments json.RawMessage
}

const toolCalls = "[TOOL_CALLS]"

// callMarks are the texts that begin and end calls of tools in models' texts: Qwen's and Hermes',
// Mistral's, Llama's.
var callMarks = []struct{ begin, end string }{
	{"<tool_call>", "</tool_call>"},
	{toolCalls, ""},
	{"<|python_tag|>", ""},
}

// Calls separates calls of tools from the other text of a model while it is generated. The zero
// value knows no tools and passes all text on.
type Calls struct {
	// Tools are the names of the tools that may be called.
	Tools map[string]bool

	held   string
	inCall bool
	end    string
	begun  bool // some content or call preceded
}

// Push adds text, and returns the content and the calls that are now certain.
func (c *Calls) Push(text string) (content string, calls []Call) {
	if len(c.Tools) == 0 {
		return text, nil
	}
	c.held += text
	for {
		if !c.inCall {
			more, found := c.findCall()
			content += more
			if !found {
				return content, calls
			}
		}
		found, ok := c.finishCall()
		if !ok {
			return content, calls
		}
		calls = append(calls, found...)
	}
}

// findCall returns the content before the next call, and reports whether a call begins.
func (c *Calls) findCall() (content string, found bool) {
	if trimmed := strings.TrimLeft(c.held, " \n\r\t"); !c.begun {
		if trimmed == "" {
			return "", false
		}
		if trimmed[0] == '{' || trimmed[0] == '[' && !mayBegin(trimmed, toolCalls) {
			c.held, c.inCall, c.end = trimmed, true, ""
			return "", true
		}
	}
	for _, mark := range callMarks {
		if before, after, ok := strings.Cut(c.held, mark.begin); ok {
			c.held, c.inCall, c.end, c.begun = after, true, mark.end, true
			return strings.TrimRight(before, " \n\r\t"), true
		}
	}
	held := 0
	for _, mark := range callMarks {
		for n := min(len(mark.begin)-1, len(c.held)); n > held; n-- {
			if strings.HasSuffix(c.held, mark.begin[:n]) {
				held = n
			}
		}
	}
	// White space before a call is not content, so it is held until the text after it arrives.
	content = strings.TrimRight(c.held[:len(c.held)-held], " \n\r\t")
	c.held = c.held[len(content):]
	c.begun = c.begun || strings.TrimSpace(content) != ""
	return content, false
}

// finishCall returns the calls at the beginning of the held text, and reports whether they are
// complete.
func (c *Calls) finishCall() (calls []Call, complete bool) {
	in := json.NewDecoder(strings.NewReader(c.held))
	var value json.RawMessage
	if err := in.Decode(&value); err != nil {
		return nil, false
	}
	if calls = c.parse(value); calls == nil {
		return nil, false
	}
	rest := strings.TrimLeft(c.held[in.InputOffset():], " \n\r\t")
	if !strings.HasPrefix(rest, c.end) {
		return nil, false
	}
	c.held, c.inCall, c.begun = strings.TrimLeft(rest[len(c.end):], " \n\r\t;"), false, false
	return calls, true
}

// parse returns the calls in a JSON value, nil if it contains anything else.
func (c *Calls) parse(value json.RawMessage) []Call {
	if bytes.HasPrefix(value, []byte("[")) {
		var list []json.RawMessage
		_ = json.Unmarshal(value, &list)
		var calls []Call
		for _, v := range list {
			parsed := c.parse(v)
			if parsed == nil {
				return nil
			}
			calls = append(calls, parsed...)
		}
		return calls
	}
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(value, &call) != nil || !c.Tools[call.Name] {
		return nil
	}
	arguments := call.Arguments
	if arguments == nil {
		arguments = call.Parameters
	}
	if len(arguments) == 0 || arguments[0] != '{' {
		arguments = json.RawMessage("{}")
	}
	return []Call{{call.Name, arguments}}
}

// Flush returns the held text at the end of the model's text: an incomplete call is content.
func (c *Calls) Flush() string {
	held := c.held
	c.held, c.inCall = "", false
	return held
}

// mayBegin reports whether text begins with mark, or is a prefix of it.
func mayBegin(text, mark string) bool {
	n := min(len(text), len(mark))
	return text[:n] == mark[:n]
}
