package openai_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/openai"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

const responses = "/v1/responses"

// respond posts a request for a response with an input; members follow the input.
func respond(t testing.TB, b *texttest.Backend, members string) *httptest.ResponseRecorder {
	t.Helper()
	return post(t, b, responses, `{"model":"small","input":"hi"`+members+`}`)
}

func TestResponse(t *testing.T) {
	b := &texttest.Backend{Answer: "Good day"}
	w := respond(t, b, `,"instructions":"be short","max_output_tokens":50,"temperature":0,"top_p":0.5,"seed":3,"store":true,"metadata":{"a":"b"},"service_tier":"auto"`)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, c := range []struct {
		path []any
		want any
	}{
		{[]any{"object"}, "response"},
		{[]any{"status"}, "completed"},
		{[]any{"store"}, false},
		{[]any{"error"}, nil},
		{[]any{"instructions"}, "be short"},
		{[]any{"max_output_tokens"}, 50.0},
		{[]any{"temperature"}, 0.0},
		{[]any{"top_p"}, 0.5},
		{[]any{"metadata", "a"}, "b"},
		{[]any{"service_tier"}, "default"},
		{[]any{"tool_choice"}, "auto"},
		{[]any{"parallel_tool_calls"}, true},
		{[]any{"text", "format", "type"}, "text"},
		{[]any{"output", 0, "type"}, "message"},
		{[]any{"output", 0, "role"}, "assistant"},
		{[]any{"output", 0, "status"}, "completed"},
		{[]any{"output", 0, "content", 0, "type"}, "output_text"},
		{[]any{"output", 0, "content", 0, "text"}, "Good day"},
		{[]any{"output", 1}, nil},
		{[]any{"usage", "input_tokens"}, float64(len("rendered"))},
		{[]any{"usage", "input_tokens_details", "cached_tokens"}, 1.0},
		{[]any{"usage", "input_tokens_details", "cache_write_tokens"}, 0.0},
		{[]any{"usage", "output_tokens"}, 3.0},
		{[]any{"usage", "output_tokens_details", "reasoning_tokens"}, 0.0},
		{[]any{"usage", "total_tokens"}, 11.0},
	} {
		if got := at(t, w.Body.Bytes(), c.path...); got != c.want {
			t.Errorf("%v = %v, want %v", c.path, got, c.want)
		}
	}
	if g := b.Requests[0]; g.MaxTokens != 50 || g.Sampling.Temperature != 0 || g.Sampling.TopP != 0.5 || g.Sampling.Seed != 3 {
		t.Errorf("generation %+v", g)
	}
	if got := string(b.Conversations[0].Messages); got != `[{"role":"system","content":"be short"},{"role":"user","content":"hi"}]` {
		t.Errorf("messages %s", got)
	}
	if b.Released != 1 {
		t.Errorf("released %d times", b.Released)
	}
}

// An answer that a limit cuts off is incomplete.
func TestIncompleteResponse(t *testing.T) {
	w := respond(t, &texttest.Backend{Answer: "Good day"}, `,"max_output_tokens":2`)
	body := w.Body.Bytes()
	if at(t, body, "status") != "incomplete" || at(t, body, "incomplete_details", "reason") != "max_output_tokens" || at(t, body, "output", 0, "status") != "incomplete" ||
		at(t, body, "output", 0, "content", 0, "text") != "Good d" || at(t, body, "completed_at") != nil {
		t.Errorf("%s", body)
	}
	list := eventsOf(t, respond(t, &texttest.Backend{Answer: "Good day"}, `,"max_output_tokens":2,"stream":true`))
	if last := list[len(list)-1]; last["type"] != "response.incomplete" {
		t.Errorf("the last event is %v", last)
	}
}

// eventsOf returns the events of a stream, whose names and numbers it checks.
func eventsOf(t testing.TB, w *httptest.ResponseRecorder) []map[string]any {
	t.Helper()
	var list []map[string]any
	for event := range strings.SplitSeq(strings.TrimSuffix(w.Body.String(), "\n\n"), "\n\n") {
		name, data, found := strings.Cut(event, "\ndata: ")
		var v map[string]any
		if err := json.Unmarshal([]byte(data), &v); err != nil || !found || name != "event: "+v["type"].(string) || v["sequence_number"] != float64(len(list)) {
			t.Fatalf("event %d (%v): %s", len(list), err, event)
		}
		list = append(list, v)
	}
	return list
}

// typesOf returns the types of events.
func typesOf(list []map[string]any) []string {
	var types []string
	for _, e := range list {
		kind, _ := e["type"].(string)
		types = append(types, strings.TrimPrefix(kind, "response."))
	}
	return types
}

// The events of a stream make up the response that is returned without a stream.
func TestStreamedResponse(t *testing.T) {
	call := `<tool_call>{"name":"weather","arguments":{"city":"Oslo"}}</tool_call>`
	for name, c := range map[string]struct {
		answer, template string
		types            []string
	}{
		"text": {"Good day", "", []string{
			"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.delta", "output_text.delta",
			"output_text.done", "content_part.done", "output_item.done", "completed",
		}},
		"call after text": {"Yes" + call, "", []string{
			"created", "in_progress", "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done",
			"output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done", "completed",
		}},
		"text after call": {call + "Yes", "", []string{
			"created", "in_progress", "output_item.added", "function_call_arguments.delta", "function_call_arguments.done", "output_item.done",
			"output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
		}},
		"thoughts": {"<think>hm</think>Yes", "{{ tools }}<think>", []string{
			"created", "in_progress", "output_item.added", "content_part.added", "reasoning_text.delta", "reasoning_text.done", "content_part.done",
			"output_item.done", "output_item.added", "content_part.added", "output_text.delta", "output_text.done", "content_part.done", "output_item.done", "completed",
		}},
		"nothing": {"", "", []string{"created", "in_progress", "completed"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := &texttest.Backend{Answer: c.answer, Template: c.template}
			members := `,"tools":[{"type":"function","name":"weather","parameters":{"type":"object"}}]`
			list := eventsOf(t, respond(t, b, members+`,"stream":true`))
			if diff := cmp.Diff(c.types, withoutRepeats(typesOf(list), name == "text")); diff != "" {
				t.Error(diff)
			}
			var whole map[string]any
			if err := json.Unmarshal(respond(t, b, members).Body.Bytes(), &whole); err != nil {
				t.Fatal(err)
			}
			final, _ := list[len(list)-1]["response"].(map[string]any)
			for _, r := range []map[string]any{whole, final} {
				withoutIdentifiers(r)
			}
			if diff := cmp.Diff(whole, final); diff != "" {
				t.Errorf("with and without a stream: %s", diff)
			}
			if diff := cmp.Diff(final["output"], accumulate(list)); diff != "" {
				t.Errorf("events and their result: %s", diff)
			}
		})
	}
}

// withoutRepeats returns types without the repetitions of deltas, unless keep is set.
func withoutRepeats(types []string, keep bool) []string {
	if keep {
		return types
	}
	return slices.CompactFunc(types, func(a, b string) bool { return a == b && strings.HasSuffix(a, ".delta") })
}

// withoutIdentifiers removes what differs between equal responses.
func withoutIdentifiers(r map[string]any) {
	for _, name := range []string{"id", "created_at", "completed_at"} {
		delete(r, name)
	}
	output, _ := r["output"].([]any)
	for _, item := range output {
		if item, ok := item.(map[string]any); ok {
			delete(item, "id")
			delete(item, "call_id")
		}
	}
}

// accumulate returns the output that events describe, without identifiers.
func accumulate(list []map[string]any) []any {
	output := []any{}
	for _, e := range list {
		index, _ := e["output_index"].(float64)
		switch kind, _ := e["type"].(string); {
		case kind == "response.output_item.added":
			output = append(output, e["item"])
		case strings.HasSuffix(kind, "_text.delta"):
			part := output[int(index)].(map[string]any)["content"].([]any)[0].(map[string]any)
			part["text"] = part["text"].(string) + e["delta"].(string)
		case kind == "response.content_part.added":
			output[int(index)].(map[string]any)["content"] = []any{e["part"]}
		case kind == "response.function_call_arguments.delta":
			item := output[int(index)].(map[string]any)
			item["arguments"] = item["arguments"].(string) + e["delta"].(string)
		case kind == "response.output_item.done":
			output[int(index)].(map[string]any)["status"] = "completed"
		}
	}
	r := map[string]any{"output": output}
	withoutIdentifiers(r)
	return output
}

func TestThoughtsOfAResponse(t *testing.T) {
	b := &texttest.Backend{Answer: "<think>\nhm</think>\n\nGood day", Template: "{{ tools }}{% if enable_thinking %}<think>"}
	body := respond(t, b, `,"reasoning":{"effort":"none","summary":"auto"},"include":["reasoning.encrypted_content"]`).Body.Bytes()
	thoughts := at(t, body, "usage", "output_tokens_details", "reasoning_tokens")
	if at(t, body, "output", 0, "type") != "reasoning" || at(t, body, "output", 0, "content", 0, "text") != "hm" || at(t, body, "output", 1, "content", 0, "text") != "Good day" ||
		thoughts == 0.0 || thoughts == at(t, body, "usage", "output_tokens") || at(t, body, "reasoning", "effort") != "none" {
		t.Errorf("%s", body)
	}
	if got := string(b.Conversations[0].Variables); got != `{"enable_thinking":false}` {
		t.Errorf("variables %s", got)
	}
	b.Answer, b.Template, b.Rendered = `{"a":1}`, "{{ tools }}<think>", "<think>"
	body = respond(t, b, `,"text":{"format":{"type":"json_object"}}`).Body.Bytes()
	if got := at(t, body, "output", 0, "content", 0, "text"); got != `{"a":1}` || at(t, body, "output", 0, "type") != "message" {
		t.Errorf("within a format: %s", body)
	}
}

func TestToolsOfAResponse(t *testing.T) {
	const tools = `,"tools":[{"type":"function","name":"weather","description":null,"parameters":{"type":"object"},"strict":true},{"type":"function","name":"time","parameters":null}]`
	call := `{"name": "weather", "arguments": {"city":"Oslo"}}`
	for choice, want := range map[string]struct{ within, without string }{
		`"auto"`:                            {},
		`null`:                              {},
		`"required"`:                        {"weather", ""},
		`{"type":"function","name":"time"}`: {"time", "weather"},
		`{"type":"allowed_tools","mode":"required","tools":[{"type":"function","name":"weather"}]}`: {"weather", "time"},
		`{"type":"allowed_tools","tools":[{"type":"function","name":"weather"}]}`:                   {},
	} {
		b := &texttest.Backend{Answer: call}
		w := respond(t, b, tools+`,"tool_choice":`+choice)
		if w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", choice, w.Code, w.Body)
			continue
		}
		g := b.Requests[0].Grammar
		if !strings.Contains(g, want.within) || want.without != "" && strings.Contains(g, want.without) || (want.within == "") != (g == "") {
			t.Errorf("%s: grammar %s", choice, g)
		}
		described := `[{"type":"function","function":{"name":"weather","parameters":{"type":"object"},"strict":true}},{"type":"function","function":{"name":"time"}}]`
		if got := string(b.Conversations[0].Tools); got != described {
			t.Errorf("%s: tools %s", choice, got)
		}
		if strings.Contains(choice, "time") {
			continue // which the model does not call
		}
		if body := w.Body.Bytes(); at(t, body, "output", 0, "type") != "function_call" || at(t, body, "output", 0, "arguments") != `{"city":"Oslo"}` {
			t.Errorf("%s: %s", choice, body)
		}
	}
	b := &texttest.Backend{Answer: call}
	if body := respond(t, b, tools+`,"tool_choice":"none"`).Body.Bytes(); at(t, body, "output", 0, "content", 0, "text") != call {
		t.Errorf("none: %s", body)
	}
	b.Answer = "<tool_call>" + call + "</tool_call><tool_call>" + call + "</tool_call>"
	if body := respond(t, b, tools+`,"parallel_tool_calls":false`).Body.Bytes(); at(t, body, "output", 1) != nil || at(t, body, "parallel_tool_calls") != false {
		t.Errorf("one at a time: %s", body)
	}
}

func TestInputOfAResponse(t *testing.T) {
	for name, c := range map[string]struct{ input, want string }{
		"parts": {`[{"role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]}]`, `{"role":"user","content":"ab"}`},
		"roles": {
			`[{"type":"message","role":"developer","content":"a"},{"role":"assistant","id":"msg_1","status":"completed","content":[{"type":"output_text","text":"b","annotations":[]},{"type":"refusal","refusal":"c"}]}]`,
			`{"role":"system","content":"a"},{"role":"assistant","content":"bc"}`,
		},
		"one turn of the assistant": {
			`[{"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},{"role":"assistant","content":"a"},` +
				`{"type":"function_call","call_id":"1","name":"f","arguments":"{\"x\":1}"},{"type":"function_call","call_id":"2","name":"g","arguments":"{"},` +
				`{"type":"function_call_output","call_id":"1","output":"b"},{"type":"function_call_output","call_id":"2","output":[{"type":"input_text","text":"c"}]}]`,
			`{"role":"assistant","content":"a","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{"x":1}}},` +
				`{"id":"2","type":"function","function":{"name":"g","arguments":"{"}}],"reasoning_content":"hm"},` +
				`{"role":"tool","content":"b","name":"f","tool_call_id":"1"},{"role":"tool","content":"c","name":"g","tool_call_id":"2"}`,
		},
		"encrypted thoughts": {`[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":"y"},{"role":"user","content":"a"}]`, `{"role":"user","content":"a"}`},
	} {
		b := &texttest.Backend{Answer: "x"}
		w := post(t, b, responses, `{"model":"small","input":`+c.input+`}`)
		if w.Code != http.StatusOK || string(b.Conversations[0].Messages) != "["+c.want+"]" {
			t.Errorf("%s: %d %s, messages %v", name, w.Code, w.Body, b.Conversations)
		}
	}
}

// What a server without state cannot do is refused with the name of its member.
func TestRefusedResponses(t *testing.T) {
	for members, param := range map[string]string{
		`"input":"a","previous_response_id":"resp_1"`:                     "previous_response_id",
		`"input":"a","conversation":{"id":"conv_1"}`:                      "conversation",
		`"prompt":{"id":"pmpt_1"}`:                                        "prompt",
		`"input":"a","background":true`:                                   "background",
		`"input":"a","truncation":"first"`:                                "truncation",
		`"input":"a","include":["x"]`:                                     "include",
		`"input":"a","top_logprobs":21`:                                   "top_logprobs",
		`"input":"a","max_output_tokens":0`:                               "max_output_tokens",
		`"input":"a","temperature":3`:                                     "temperature",
		`"input":"a","temperature":"x"`:                                   "temperature",
		`"input":"a","max_tokens":5`:                                      "max_tokens",
		`"input":"a","reasoning":{"effort":"high"}`:                       "reasoning.effort",
		`"input":"a","text":{"verbosity":"low"}`:                          "text.verbosity",
		`"input":"a","text":{"format":{"type":"x"}}`:                      "text.format.type",
		`"input":"a","text":{"format":{"type":"json_schema","name":"x"}}`: "text.format",
		`"input":"a","text":{"format":{"type":"json_schema","name":"x","schema":{"type":"string","pattern":"(?=a)"}}}`:       "text.format",
		`"input":"a","stream_options":{"include_obfuscation":false}`:                                                         "stream_options",
		`"input":"a","tools":[{"type":"web_search"}]`:                                                                        "tools[0].type",
		`"input":"a","tools":[{"type":"function"}]`:                                                                          "tools[0]",
		`"input":"a","tool_choice":"required"`:                                                                               "tool_choice",
		`"input":"a","tool_choice":{"type":"web_search"}`:                                                                    "tool_choice",
		`"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"g"}`:                  "tool_choice",
		`"input":"a","tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"allowed_tools","tools":[{"name":"g"}]}`: "tool_choice",
		``:                          "input",
		`"input":[]`:                "input",
		`"input":null`:              "input",
		`"input":5`:                 "input",
		`"input":[{"content":"a"}]`: "input[0].role",
		`"input":[{"role":5}]`:      "input.role",
		`"input":[{"type":"item_reference","id":"msg_1"}]`:                                 "input[0]",
		`"input":[{"type":"web_search_call"}]`:                                             "input[0].type",
		`"input":[{"role":"user","content":[{"type":"input_image","image_url":"data:"}]}]`: "input[0].content",
		`"input":[{"type":"function_call","call_id":"1","arguments":"{}"}]`:                "input[0]",
		`"input":[{"type":"function_call_output","call_id":"1","output":"x"}]`:             "input[0]",
		`"input":"a","logit_bias":{"256":1}`:                                               "logit_bias",
	} {
		w := post(t, &texttest.Backend{Answer: "x"}, responses, strings.Replace(`{"model":"small",`+members+`}`, ",}", "}", 1))
		if got := at(t, w.Body.Bytes(), "error", "param"); w.Code != http.StatusBadRequest || got != param {
			t.Errorf("%s: %d, param %v: %s", members, w.Code, got, w.Body)
		}
	}
	w := post(t, &texttest.Backend{}, responses, `{"model":"other","input":"a"}`)
	if w.Code != http.StatusNotFound || at(t, w.Body.Bytes(), "error", "code") != "model_not_found" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	// A text that asks for nothing is accepted.
	w = respond(t, &texttest.Backend{Answer: "x"}, `,"previous_response_id":null,"conversation":null,"background":false,"truncation":"disabled","text":{"verbosity":"medium"},`+
		`"reasoning":null,"tools":[],"tool_choice":"auto","user":"u","prompt_cache_key":"k","safety_identifier":"s","max_tool_calls":3,"include":null`)
	if w.Code != http.StatusOK || at(t, w.Body.Bytes(), "prompt_cache_key") != "k" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// An error after the first event is a part of the stream; one before it has its status.
func TestFailedResponse(t *testing.T) {
	for kind, code := range map[outboard.Kind]string{outboard.Unreachable: "server_error", outboard.Exhausted: "rate_limit_exceeded"} {
		b := &texttest.Backend{Answer: "abcdefghi", Err: outboard.Errorf(kind, "", "the node died"), Pieces: 1}
		list := eventsOf(t, respond(t, b, `,"stream":true`))
		last := list[len(list)-1]
		encoded, err := json.Marshal(last)
		if err != nil {
			t.Fatal(err)
		}
		if last["type"] != "response.failed" || at(t, encoded, "response", "error", "code") != code || at(t, encoded, "response", "error", "message") != "the node died" ||
			at(t, encoded, "response", "status") != "failed" || at(t, encoded, "response", "output", 0, "content", 0, "text") != "abc" {
			t.Errorf("%s", encoded)
		}
		b.Pieces = 0
		if w := respond(t, b, `,"stream":true`); w.Code < 400 || at(t, w.Body.Bytes(), "error", "message") != "the node died" {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

// A prompt that is too long has an error by which clients shorten it, whatever process or node finds that.
func TestLongPrompts(t *testing.T) {
	for _, place := range []string{"", "node dinghy: "} {
		long := outboard.Errorf(outboard.Invalid, "", "%s%v", place, engine.ErrTooLong("9", 8))
		for path, param := range map[string]string{responses: "input", "/v1/completions": "prompt"} {
			w := post(t, &texttest.Backend{Err: long}, path, `{"model":"small","`+param+`":"a"}`)
			if at(t, w.Body.Bytes(), "error", "param") != param || at(t, w.Body.Bytes(), "error", "code") != "context_length_exceeded" {
				t.Errorf("%s", w.Body)
			}
		}
	}
}

func TestLogProbsOfAResponse(t *testing.T) {
	for _, members := range []string{`,"include":["message.output_text.logprobs"],"top_logprobs":2`, `,"top_logprobs":2`} {
		b := &texttest.Backend{Answer: "Good day"}
		body := respond(t, b, members).Body.Bytes()
		probs, _ := at(t, body, "output", 0, "content", 0, "logprobs").([]any)
		if len(probs) != 3 || at(t, body, "output", 0, "content", 0, "logprobs", 0, "top_logprobs", 1, "token") != "x" || at(t, body, "top_logprobs") != 2.0 {
			t.Errorf("%s: %s", members, body)
		}
		var streamed []any
		for _, e := range eventsOf(t, respond(t, b, members+`,"stream":true`)) {
			if e["type"] == "response.output_text.delta" {
				list, _ := e["logprobs"].([]any)
				streamed = append(streamed, list...)
			}
		}
		if diff := cmp.Diff(probs, streamed); diff != "" {
			t.Error(diff)
		}
	}
}

// Earlier responses cannot be had.
func TestStoredResponses(t *testing.T) {
	for path, method := range map[string]string{"/v1/responses/resp_1": http.MethodGet, "/v1/responses/resp_1/input_items": http.MethodGet, "/v1/responses/resp_2": http.MethodDelete} {
		w := httptest.NewRecorder()
		openai.New(openai.Options{Models: &texttest.Backend{}}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, http.NoBody))
		if w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "not stored") {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

// With truncation auto the oldest turns are dropped, as few as possible, until the prompt leaves room for
// an answer; the instructions remain, and so does the last turn.
func TestTruncatedConversation(t *testing.T) {
	turn := func(question string) string {
		return `{"role":"user","content":"` + question + `"},{"role":"assistant","content":"` + strings.Repeat("a", 120) + `"}`
	}
	var turns []string
	for i := range 20 {
		turns = append(turns, turn("question "+strconv.Itoa(i)))
	}
	input := `[` + strings.Join(turns, ",") + `,{"role":"user","content":"last"}]`
	for members, want := range map[string]struct {
		status int
		first  string // question that remains
	}{
		`"truncation":"disabled"`:                        {http.StatusBadRequest, ""},
		`"truncation":"auto"`:                            {http.StatusOK, "question 17"},
		`"truncation":"auto","max_output_tokens":16`:     {http.StatusOK, "question 16"},
		`"truncation":"auto","max_output_tokens":100000`: {http.StatusOK, "question 18"},
	} {
		b := &texttest.Backend{Answer: "x", RenderJSON: true}
		w := post(t, b, responses, `{"model":"small","instructions":"be short","input":`+input+`,`+members+`}`)
		if w.Code != want.status {
			t.Errorf("%s: %d %s", members, w.Code, w.Body)
			continue
		}
		if want.status != http.StatusOK {
			continue
		}
		if got := at(t, w.Body.Bytes(), "truncation"); got != "auto" {
			t.Errorf("%s: truncation %v", members, got)
		}
		prompt := b.Prompts[len(b.Prompts)-1]
		if !strings.HasPrefix(prompt, `[{"role":"system","content":"be short"},{"role":"user","content":"`+want.first+`"`) || !strings.HasSuffix(prompt, `"last"}]`) {
			t.Errorf("%s: prompt %.120s", members, prompt)
		}
		if len(b.Prompts) > 7 {
			t.Errorf("%s: the conversation was rendered %d times", members, len(b.Prompts))
		}
	}
	// What does not fit in any case is refused.
	w := post(t, &texttest.Backend{RenderJSON: true}, responses, `{"model":"small","truncation":"auto","input":[`+turn("before")+`,{"role":"user","content":"`+strings.Repeat("a", 2000)+`"}]}`)
	if w.Code != http.StatusBadRequest {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
