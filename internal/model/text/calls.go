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

	held   []byte
	inCall bool
	value  valueScan // of the call's JSON, at the beginning of held
	end    string
	begun  bool // some content or call preceded
}

// Push adds text, and returns the content and the calls that are now certain.
func (c *Calls) Push(text string) (content string, calls []Call) {
	if len(c.Tools) == 0 {
		return text, nil
	}
	c.held = append(c.held, text...)
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
	text := string(c.held)
	if trimmed := strings.TrimLeft(text, " \n\r\t"); !c.begun {
		if trimmed == "" {
			return "", false
		}
		if trimmed[0] == '{' || trimmed[0] == '[' && !mayBegin(trimmed, toolCalls) {
			c.beginCall(trimmed, "")
			return "", true
		}
	}
	for _, mark := range callMarks {
		if before, after, ok := strings.Cut(text, mark.begin); ok {
			c.beginCall(after, mark.end)
			c.begun = true
			return strings.TrimRight(before, " \n\r\t"), true
		}
	}
	held := 0
	for _, mark := range callMarks {
		held = max(held, overlap(text, mark.begin))
	}
	// White space before a call is not content, so it is held until the text after it arrives.
	content = strings.TrimRight(text[:len(text)-held], " \n\r\t")
	c.held = c.held[len(content):]
	c.begun = c.begun || strings.TrimSpace(content) != ""
	return content, false
}

// beginCall holds the text of a call, which ends with end.
func (c *Calls) beginCall(text, end string) {
	c.held, c.inCall, c.value, c.end = []byte(text), true, valueScan{}, end
}

// finishCall returns the calls at the beginning of the held text, and reports whether they are
// complete.
func (c *Calls) finishCall() (calls []Call, complete bool) {
	if !c.value.scan(c.held) {
		return nil, false
	}
	rest := bytes.TrimLeft(c.held[c.value.at:], " \n\r\t")
	if !bytes.HasPrefix(rest, []byte(c.end)) {
		return nil, false
	}
	if calls = c.parse(c.held[:c.value.at]); calls == nil {
		c.value.invalid = true
		return nil, false
	}
	c.held, c.inCall, c.begun = bytes.TrimLeft(rest[len(c.end):], " \n\r\t;"), false, false
	return calls, true
}

// A valueScan finds the end of a JSON object or array in a text that grows. It reads each byte once:
// a model's text arrives in thousands of pieces.
type valueScan struct {
	at              int // the bytes that were read
	depth           int // of the brackets that are open
	quoted, escaped bool
	complete        bool
	invalid         bool // text is no object and no array
}

// scan reads the rest of text, and reports whether the value is complete and ends at s.at.
func (s *valueScan) scan(text []byte) bool {
	for ; s.at < len(text) && !s.complete && !s.invalid; s.at++ {
		s.read(text[s.at])
	}
	return s.complete && !s.invalid
}

// read reads the next byte.
func (s *valueScan) read(b byte) {
	switch {
	case s.escaped:
		s.escaped = false
	case s.quoted:
		s.escaped, s.quoted = b == '\\', b != '"'
	case b == '{' || b == '[':
		s.depth++
	case b == '}' || b == ']':
		s.depth--
		s.complete, s.invalid = s.depth == 0, s.depth < 0
	case s.depth == 0:
		s.invalid = !isSpace(b)
	default:
		s.quoted = b == '"'
	}
}

func isSpace(b byte) bool { return b == ' ' || b == '\n' || b == '\r' || b == '\t' }

// parse returns the calls in a JSON value, an object or an array of objects; nil if it contains
// anything else.
func (c *Calls) parse(value json.RawMessage) []Call {
	var calls []Call
	list := []json.RawMessage{value}
	if bytes.HasPrefix(bytes.TrimLeft(value, " \n\r\t"), []byte("[")) {
		list = nil
		_ = json.Unmarshal(value, &list)
	}
	for _, v := range list {
		call, ok := c.parseCall(v)
		if !ok {
			return nil
		}
		calls = append(calls, call)
	}
	return calls
}

// parseCall returns the call in a JSON value, false if it is no call of a known tool.
func (c *Calls) parseCall(value json.RawMessage) (Call, bool) {
	var call struct {
		Name       string          `json:"name"`
		Arguments  json.RawMessage `json:"arguments"`
		Parameters json.RawMessage `json:"parameters"`
	}
	if json.Unmarshal(value, &call) != nil || !c.Tools[call.Name] {
		return Call{}, false
	}
	arguments := call.Arguments
	if arguments == nil {
		arguments = call.Parameters
	}
	if len(arguments) == 0 || arguments[0] != '{' {
		arguments = json.RawMessage("{}")
	}
	return Call{call.Name, arguments}, true
}

// Flush returns the held text at the end of the model's text: an incomplete call is content.
func (c *Calls) Flush() string {
	held := string(c.held)
	c.held, c.inCall = nil, false
	return held
}

// mayBegin reports whether text begins with mark, or is a prefix of it.
func mayBegin(text, mark string) bool {
	n := min(len(text), len(mark))
	return text[:n] == mark[:n]
}
