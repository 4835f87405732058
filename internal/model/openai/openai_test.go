package openai_test

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/openai"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

func post(t testing.TB, b *texttest.Backend, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	openai.New(openai.Options{Models: b}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return w
}

// at returns the value at a path of members and indexes.
func at(t testing.TB, body []byte, path ...any) any {
	t.Helper()
	var v any
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%v: %s", err, body)
	}
	for _, step := range path {
		switch step := step.(type) {
		case string:
			o, _ := v.(map[string]any)
			v = o[step]
		case int:
			list, _ := v.([]any)
			if step >= len(list) {
				return nil
			}
			v = list[step]
		}
	}
	return v
}

const hello = `"model":"small","messages":[{"role":"user","content":[{"type":"text","text":"hi"}]}]`

func TestChat(t *testing.T) {
	b := &texttest.Backend{Answer: "Good day"}
	w := post(t, b, "/v1/chat/completions", `{`+hello+`,"seed":3,"stop":"END","temperature":0,"max_completion_tokens":50,"logprobs":true,"top_logprobs":2,"n":2}`)
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, c := range []struct {
		path []any
		want any
	}{
		{[]any{"object"}, "chat.completion"},
		{[]any{"choices", 1, "message", "content"}, "Good day"},
		{[]any{"choices", 0, "finish_reason"}, "stop"},
		{[]any{"choices", 0, "logprobs", "content", 0, "token"}, "Goo"},
		{[]any{"choices", 0, "logprobs", "content", 0, "top_logprobs", 1, "logprob"}, -1.0},
		{[]any{"usage", "prompt_tokens"}, float64(len("rendered"))},
		{[]any{"usage", "completion_tokens"}, 6.0},
		{[]any{"usage", "prompt_tokens_details", "cached_tokens"}, 1.0},
	} {
		if got := at(t, w.Body.Bytes(), c.path...); got != c.want {
			t.Errorf("%v = %v, want %v", c.path, got, c.want)
		}
	}
	seeds := map[uint64]bool{}
	for _, g := range b.Requests {
		seeds[g.Sampling.Seed] = true
		if g.MaxTokens != 50 || g.Stop[0] != "END" || g.Sampling.Temperature != 0 || g.LogProbs != 2 {
			t.Errorf("generation %+v", g)
		}
	}
	if !seeds[3] || len(seeds) != 2 {
		t.Errorf("seeds %v", seeds)
	}
	if got := string(b.Conversations[0].Messages); got != `[{"role":"user","content":"hi"}]` {
		t.Errorf("messages %s", got)
	}
	if b.Released != 1 {
		t.Errorf("released %d times", b.Released)
	}
}

// events returns the data of server-sent events.
func events(body string) []string {
	var list []string
	for event := range strings.SplitSeq(body, "\n\n") {
		if data, ok := strings.CutPrefix(event, "data: "); ok {
			list = append(list, data)
		}
	}
	return list
}

func TestStreamedChat(t *testing.T) {
	w := post(t, &texttest.Backend{Answer: "Good day"}, "/v1/chat/completions", `{`+hello+`,"stream":true,"stream_options":{"include_usage":true}}`)
	if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, "text/event-stream") {
		t.Errorf("content type %q", got)
	}
	list := events(w.Body.String())
	if len(list) != 7 || list[6] != "[DONE]" {
		t.Fatalf("events %q", list)
	}
	if got := at(t, []byte(list[0]), "choices", 0, "delta", "role"); got != "assistant" {
		t.Errorf("first delta has the role %v", got)
	}
	content := ""
	for _, e := range list[1:4] {
		piece, _ := at(t, []byte(e), "choices", 0, "delta", "content").(string)
		content += piece
	}
	if content != "Good day" {
		t.Errorf("content %q", content)
	}
	if got := at(t, []byte(list[4]), "choices", 0, "finish_reason"); got != "stop" {
		t.Errorf("finish reason %v", got)
	}
	if got := at(t, []byte(list[5]), "usage", "total_tokens"); got != 11.0 {
		t.Errorf("usage %v", got)
	}
}

const tools = `"tools":[{"type":"function","function":{"name":"weather","parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}]`

// Thoughts are separated from the answer, in the extension of DeepSeek and others. A client sends them
// back in that member, or in vLLM's.
func TestThoughts(t *testing.T) {
	const template = "{{ tools }}{% if enable_thinking %}<think>"
	b := &texttest.Backend{Answer: "<think>\nhm, a <b\n</think>\n\nGood day", Template: template}
	body := `{"model":"small","messages":[{"role":"assistant","content":"a","reasoning":"before"},{"role":"assistant","content":"b","reasoning_content":"later"}]`
	answer := post(t, b, "/v1/chat/completions", body+`}`).Body.Bytes()
	message := at(t, answer, "choices", 0, "message").(map[string]any) //nolint:forcetypeassert // an answer has it
	if message["reasoning_content"] != "hm, a <b\n" || message["content"] != "Good day" {
		t.Errorf("%s", answer)
	}
	thoughts := at(t, answer, "usage", "completion_tokens_details", "reasoning_tokens")
	if thoughts == nil || thoughts == 0.0 || thoughts == at(t, answer, "usage", "completion_tokens") {
		t.Errorf("usage %v", at(t, answer, "usage"))
	}
	if got := string(b.Conversations[0].Messages); strings.Count(got, "reasoning_content") != 2 || !strings.Contains(got, "before") || !strings.Contains(got, "later") {
		t.Errorf("messages %s", got)
	}
	var streamed [2]string
	probabilities := 0
	for _, event := range events(post(t, b, "/v1/chat/completions", body+`,"stream":true,"logprobs":true}`).Body.String()) {
		if event == "[DONE]" {
			continue
		}
		for i, member := range []string{"reasoning_content", "content"} {
			more, _ := at(t, []byte(event), "choices", 0, "delta", member).(string)
			streamed[i] += more
		}
		if at(t, []byte(event), "choices", 0, "logprobs") != nil {
			probabilities++
		}
	}
	if want := (len(b.Answer) + 2) / 3; streamed != [2]string{"hm, a <b\n", "Good day"} || probabilities != want {
		t.Errorf("streamed %q, with the probabilities of %d tokens, want %d", streamed, probabilities, want)
	}
}

// Without thoughts there is no member for them, and a format leaves them no place.
func TestNoThoughts(t *testing.T) {
	const template = "{{ tools }}<think>"
	for members, answer := range map[string]string{`"n":1`: "</think>Good day", `"response_format":{"type":"json_object"}`: `{"a":1}`} {
		b := &texttest.Backend{Answer: answer, Template: template, Rendered: "<think>"}
		body := post(t, b, "/v1/chat/completions", `{`+hello+`,`+members+`}`).Body
		if strings.Contains(body.String(), "reasoning_content") || !strings.Contains(body.String(), `"content":`) {
			t.Errorf("%s: %s", members, body)
		}
	}
}

func TestTools(t *testing.T) {
	call := `<tool_call>{"name":"weather","arguments":{"city":"Oslo"}}</tool_call>`
	w := post(t, &texttest.Backend{Answer: call}, "/v1/chat/completions", `{`+hello+`,`+tools+`}`)
	body := w.Body.Bytes()
	if got := at(t, body, "choices", 0, "message", "tool_calls", 0, "function", "arguments"); got != `{"city":"Oslo"}` {
		t.Errorf("arguments %v of %s", got, body)
	}
	if got := at(t, body, "choices", 0, "finish_reason"); got != "tool_calls" {
		t.Errorf("finish reason %v", got)
	}
	w = post(t, &texttest.Backend{Answer: call}, "/v1/chat/completions", `{`+hello+`,`+tools+`,"stream":true}`)
	found := false
	for _, e := range events(w.Body.String()) {
		if strings.Contains(e, "tool_calls\":[") {
			found = true
			if got := at(t, []byte(e), "choices", 0, "delta", "tool_calls", 0, "function", "name"); got != "weather" {
				t.Errorf("streamed call %s", e)
			}
		}
	}
	if !found {
		t.Errorf("no call was streamed: %s", w.Body)
	}
	b := &texttest.Backend{Answer: `{"name": "weather", "arguments": {"city":"Oslo"}}`}
	post(t, b, "/v1/chat/completions", `{`+hello+`,`+tools+`,"tool_choice":"required"}`)
	if !strings.Contains(b.Requests[0].Grammar, "weather") {
		t.Errorf("grammar %q does not require the tool", b.Requests[0].Grammar)
	}
	b = &texttest.Backend{Answer: call}
	w = post(t, b, "/v1/chat/completions", `{`+hello+`,`+tools+`,"tool_choice":"none"}`)
	if got := at(t, w.Body.Bytes(), "choices", 0, "message", "content"); got != call {
		t.Errorf("content %v with tool_choice none", got)
	}
}

func TestCompletions(t *testing.T) {
	b := &texttest.Backend{Answer: "one two three four five six"}
	w := post(t, b, "/v1/completions", `{"model":"small","prompt":["ab","cd"],"max_tokens":2,"logprobs":1}`)
	body := w.Body.Bytes()
	for _, c := range []struct {
		path []any
		want any
	}{
		{[]any{"choices", 0, "text"}, "one tw"},
		{[]any{"choices", 1, "text"}, "one tw"},
		{[]any{"choices", 0, "finish_reason"}, "length"},
		{[]any{"choices", 0, "logprobs", "tokens", 1}, " tw"},
		{[]any{"choices", 0, "logprobs", "text_offset", 1}, 3.0},
		{[]any{"usage", "prompt_tokens"}, 4.0},
	} {
		if got := at(t, body, c.path...); got != c.want {
			t.Errorf("%v = %v, want %v", c.path, got, c.want)
		}
	}
	w = post(t, b, "/v1/completions", `{"model":"small","prompt":["ab","cd"],"max_tokens":2,"echo":true}`)
	if got := at(t, w.Body.Bytes(), "choices", 1, "text"); got != "cdone tw" {
		t.Errorf("with echo: %v", got)
	}
	b = &texttest.Backend{Answer: "x"}
	post(t, b, "/v1/completions", `{"model":"small","prompt":["ab","cd"],"suffix":"ef"}`)
	if got := strings.Join(b.Prompts, " "); got != "ab<gap>ef cd<gap>ef" {
		t.Errorf("prompts with a suffix: %s", got)
	}
	b = &texttest.Backend{Answer: "x"}
	post(t, b, "/v1/completions", `{"model":"small","prompt":[5,6]}`)
	if g := b.Requests[0]; len(g.Prompt) != 2 || g.MaxTokens != 16 {
		t.Errorf("generation %+v", g)
	}
}

// The offsets of a streamed completion count the whole text.
func TestStreamedOffsets(t *testing.T) {
	b := &texttest.Backend{Answer: "one two"}
	w := post(t, b, "/v1/completions", `{"model":"small","prompt":"ab","max_tokens":2,"logprobs":1,"stream":true}`)
	for _, want := range []string{`"text_offset":[0]`, `"text_offset":[3]`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s is not in\n%s", want, w.Body)
		}
	}
}

// The smallest part of the probabilities is that of the likeliest token: engines take 0 for all.
func TestTopPOfZero(t *testing.T) {
	for body, want := range map[string]float32{`"top_p":0`: math.SmallestNonzeroFloat32, `"top_p":0.5`: 0.5, `"top_k":0`: 0} {
		b := &texttest.Backend{Answer: "x"}
		post(t, b, "/v1/completions", `{"model":"small","prompt":"a",`+body+`}`)
		if got := b.Requests[0].Sampling.TopP; got != want {
			t.Errorf("%s: %v, want %v", body, got, want)
		}
	}
}

func TestEmbeddings(t *testing.T) {
	w := post(t, &texttest.Backend{}, "/v1/embeddings", `{"model":"small","input":["b","c"]}`)
	if diff := cmp.Diff([]any{0.6, 0.8}, at(t, w.Body.Bytes(), "data", 1, "embedding")); diff != "" {
		t.Errorf("%s: %s", diff, w.Body)
	}
	w = post(t, &texttest.Backend{}, "/v1/embeddings", `{"model":"small","input":"b","encoding_format":"base64"}`)
	if got := at(t, w.Body.Bytes(), "data", 0, "embedding"); got != "mpkZP83MTD8=" {
		t.Errorf("base64 %v", got)
	}
}

func TestModels(t *testing.T) {
	for path, want := range map[string]int{"/v1/models": 200, "/v1/models/small": 200, "/v1/models/tiny": 200, "/v1/models/other": 404, "/v1/nothing": 404} {
		w := httptest.NewRecorder()
		openai.New(openai.Options{Models: &texttest.Backend{}}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}

func TestErrors(t *testing.T) {
	long := `{"model":"small","prompt":"` + strings.Repeat("a", texttest.Context) + `"}`
	for name, c := range map[string]struct {
		path, body string
		err        error
		status     int
		param      any
		code       any
	}{
		"no JSON":     {"/v1/chat/completions", `{`, nil, 400, nil, nil},
		"type":        {"/v1/chat/completions", `{"model":7}`, nil, 400, "model", nil},
		"types":       {"/v1/completions", `{"model":"small","prompt":["a",1]}`, nil, 400, "prompt", nil},
		"input":       {"/v1/embeddings", `{"model":"small","input":{}}`, nil, 400, "input", nil},
		"no model":    {"/v1/chat/completions", `{"messages":[{"role":"user"}]}`, nil, 400, "model", nil},
		"other model": {"/v1/completions", `{"model":"big","prompt":"a"}`, nil, 404, nil, "model_not_found"},
		"temperature": {"/v1/completions", `{"model":"small","prompt":"a","temperature":3}`, nil, 400, "temperature", nil},
		"n":           {"/v1/completions", `{"model":"small","prompt":"a","n":1000}`, nil, 400, "n", nil},
		"no messages": {"/v1/chat/completions", `{"model":"small","messages":[]}`, nil, 400, "messages", nil},
		"image":       {"/v1/chat/completions", `{"model":"small","messages":[{"role":"user","content":[{"type":"image_url"}]}]}`, nil, 400, "messages[0].content", nil},
		"audio":       {"/v1/chat/completions", `{` + hello + `,"modalities":["text","audio"]}`, nil, 400, "modalities", nil},
		"schema":      {"/v1/chat/completions", `{` + hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"string","pattern":"(?=a)"}}}}`, nil, 400, "response_format", nil},
		"long":        {"/v1/completions", long, nil, 400, "prompt", nil},
		"empty":       {"/v1/completions", `{"model":"small","prompt":""}`, nil, 400, "prompt", nil},
		"overload":    {"/v1/completions", `{"model":"small","prompt":"a"}`, outboard.Errorf(outboard.Exhausted, "", "the queue is full"), 429, nil, "rate_limit_exceeded"},
		"lost":        {"/v1/completions", `{"model":"small","prompt":"a","stream":true}`, outboard.Errorf(outboard.Unreachable, "", "the node died"), 503, nil, "service_unavailable"},
	} {
		w := post(t, &texttest.Backend{Answer: "abc", Err: c.err}, c.path, c.body)
		if w.Code != c.status {
			t.Errorf("%s: status %d, want %d: %s", name, w.Code, c.status, w.Body)
		}
		if got := at(t, w.Body.Bytes(), "error", "param"); got != c.param {
			t.Errorf("%s: param %v, want %v: %s", name, got, c.param, w.Body)
		}
		if got := at(t, w.Body.Bytes(), "error", "code"); got != c.code {
			t.Errorf("%s: code %v, want %v", name, got, c.code)
		}
	}
}

type limitError struct{ error }

func (limitError) RetryAfter() time.Duration { return 12 * time.Second }

// A refusal has the time after which clients try again; they give up after two or three attempts.
func TestRetryAfter(t *testing.T) {
	limit := limitError{errors.New("the key may make 5 requests a minute")}
	for want, err := range map[string]error{
		"12": outboard.Errorf(outboard.Busy, "", "%w", limit),
		"1":  outboard.Errorf(outboard.Exhausted, "", "the queue is full"),
		"":   outboard.Errorf(outboard.Denied, "", "unknown key"),
	} {
		w := httptest.NewRecorder()
		openai.Refuse(w, err)
		if got := w.Header().Get("Retry-After"); got != want {
			t.Errorf("%v: %q, want %q", err, got, want)
		}
	}
}

func TestErrorWithinAStream(t *testing.T) {
	b := &texttest.Backend{Answer: "abcdefghi", Err: outboard.Errorf(outboard.Unreachable, "", "the node died"), Pieces: 1}
	list := events(post(t, b, "/v1/completions", `{"model":"small","prompt":"a","stream":true}`).Body.String())
	if len(list) != 2 || at(t, []byte(list[1]), "error", "message") != "the node died" {
		t.Errorf("events %q", list)
	}
}

// TestClientGone ends the generation of a client that has gone.
func TestClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &texttest.Backend{Answer: "abcdefghi", Block: true}
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/completions", strings.NewReader(`{"model":"small","prompt":"a","stream":true}`))
	w := &cancelling{httptest.NewRecorder(), cancel}
	openai.New(openai.Options{Models: b}).ServeHTTP(w, r)
	if b.Released != 1 {
		t.Error("the model was not released")
	}
}

// cancelling is a client that goes after the first bytes.
type cancelling struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (c *cancelling) Write(b []byte) (int, error) {
	c.cancel()
	return c.ResponseRecorder.Write(b)
}

func FuzzRequest(f *testing.F) {
	f.Add(`{` + hello + `,` + tools + `,"stream":true}`)
	f.Add(`{"model":"small","input":[{"role":"user","content":[{"type":"input_text","text":"a"}]},{"type":"function_call","call_id":"1","name":"f","arguments":"{}"},` +
		`{"type":"function_call_output","call_id":"1","output":"b"}],"tools":[{"type":"function","name":"f"}],"tool_choice":{"type":"function","name":"f"},"stream":true}`)
	f.Add(`{"model":"small","prompt":[[1,2]],"logit_bias":{"5":-100},"stop":["a"],"response_format":{"type":"json_object"}}`)
	s := openai.New(openai.Options{Models: &texttest.Backend{Answer: "abc"}})
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/chat/completions", "/v1/completions", "/v1/embeddings", responses} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
			if w.Code == http.StatusInternalServerError {
				t.Errorf("%s: %s", path, w.Body)
			}
		}
	})
}
