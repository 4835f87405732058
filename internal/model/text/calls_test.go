package text

import (
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCallsAreFoundHoweverTheTextIsCut(t *testing.T) {
	tools := map[string]bool{"weather": true}
	call := []Call{{"weather", []byte(`{"city":"Oslo"}`)}}
	for name, c := range map[string]struct {
		text    string
		content string
		calls   []Call
	}{
		"none":      {"It is <b>cold</b>.", "It is <b>cold</b>.", nil},
		"hermes":    {"Let me see.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\":\"Oslo\"}}\n</tool_call>", "Let me see.", call},
		"mistral":   {`[TOOL_CALLS][{"name":"weather","arguments":{"city":"Oslo"}}]`, "", call},
		"llama":     {`{"name": "weather", "parameters": {"city":"Oslo"}}`, "", call},
		"two":       {"<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Oslo\"}}</tool_call>\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Oslo\"}}</tool_call>", "", append(call, call...)},
		"unknown":   {`{"name": "rm", "arguments": {}}`, `{"name": "rm", "arguments": {}}`, nil},
		"other":     {`{"a": 1}`, `{"a": 1}`, nil},
		"escapes":   {`{"name": "weather", "arguments": {"city":"Oslo"}, "x": "\"}]\\"}`, "", call},
		"brackets":  {`{"name": "weather"]`, `{"name": "weather"]`, nil},
		"no value":  {`<tool_call>}</tool_call>`, `}</tool_call>`, nil},
		"cut short": {`<tool_call>{"name": "weath`, `{"name": "weath`, nil},
	} {
		for size := 1; size <= len(c.text); size += 3 {
			s := Calls{Tools: tools}
			var content string
			var calls []Call
			for rest := c.text; rest != ""; {
				n := min(size, len(rest))
				more, found := s.Push(rest[:n])
				content, calls, rest = content+more, append(calls, found...), rest[n:]
			}
			content += s.Flush()
			if diff := cmp.Diff(c.calls, calls); diff != "" || content != c.content {
				t.Errorf("%s in pieces of %d: content %q, want %q; calls %s", name, size, content, c.content, diff)
			}
		}
	}
}

// TestLongCallsAreReadOnce: a model's text that begins like a call, as its client can have it, is not
// read again for each of its tokens.
func TestLongCallsAreReadOnce(t *testing.T) {
	const tokens = 10_000
	for name, begin := range map[string]string{"object": `{"a":"`, "array": `[`, "call": `<tool_call>{"name":"`, "text": `<tool_call>x`} {
		c := Calls{Tools: map[string]bool{"weather": true}}
		c.Push(begin)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range tokens {
			if content, calls := c.Push("[1],"); content != "" || calls != nil {
				t.Fatalf("%s: %q, %v", name, content, calls)
			}
		}
		runtime.ReadMemStats(&after)
		if n := after.TotalAlloc - before.TotalAlloc; n > 100*4*tokens {
			t.Errorf("%s: %d bytes were allocated for a text of %d", name, n, 4*tokens)
		}
		if got := c.Flush(); !strings.HasSuffix(begin+strings.Repeat("[1],", tokens), got) || len(got) < 4*tokens {
			t.Errorf("%s: %d bytes were returned at the end", name, len(got))
		}
	}
}

func TestCallGrammar(t *testing.T) {
	if _, err := CallGrammar([]Tool{{Name: "a"}, {Name: "b", Parameters: []byte(`{"type":"object","properties":{"x":{"type":"integer"}},"required":["x"]}`)}}); err != nil {
		t.Error(err)
	}
	if _, err := CallGrammar([]Tool{{Name: "b", Parameters: []byte(`{"type":"string","pattern":"(?=x)"}`)}}); err == nil {
		t.Error("an unsupported schema was accepted")
	}
}
