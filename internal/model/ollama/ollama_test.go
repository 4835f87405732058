package ollama_test

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/ollama"
	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

func send(t testing.TB, b *texttest.Backend, method, path, body string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	ollama.New(ollama.Options{Models: b}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body)))
	return w
}

// lines decodes a stream.
func lines(t testing.TB, w *httptest.ResponseRecorder) []map[string]any {
	t.Helper()
	var list []map[string]any
	for line := range strings.Lines(w.Body.String()) {
		var v map[string]any
		if err := json.Unmarshal([]byte(line), &v); err != nil {
			t.Fatalf("%v: %q", err, line)
		}
		list = append(list, v)
	}
	return list
}

func TestGenerate(t *testing.T) {
	b := &texttest.Backend{Answer: "Good day"}
	w := send(t, b, http.MethodPost, "/api/generate", `{"model":"small:latest","prompt":"hi","system":"be short","options":{"seed":3,"num_predict":9,"temperature":0}}`)
	list := lines(t, w)
	answer := ""
	for _, line := range list {
		piece, _ := line["response"].(string)
		answer += piece
	}
	last := list[len(list)-1]
	if answer != "Good day" || len(list) != 4 || last["done"] != true || last["done_reason"] != "stop" || last["eval_count"] != 3.0 {
		t.Errorf("%s", w.Body)
	}
	if got := w.Header().Get("Content-Type"); got != "application/x-ndjson" {
		t.Errorf("content type %q", got)
	}
	if g := b.Requests[0]; g.Sampling.Seed != 3 || g.MaxTokens != 9 || g.Sampling.Temperature != 0 || g.Sampling.TopK != 40 {
		t.Errorf("generation %+v", g)
	}
	if got := string(b.Conversations[0].Messages); !strings.Contains(got, "be short") {
		t.Errorf("messages %s", got)
	}
	send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","options":{"top_p":0}}`)
	if got := b.Requests[1].Sampling.TopP; got != math.SmallestNonzeroFloat32 {
		t.Errorf("top_p of 0: %v, which engines take for all tokens", got)
	}
	send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"raw text","raw":true,"stream":false}`)
	if got := b.Prompts[len(b.Prompts)-1]; got != "raw text" {
		t.Errorf("raw prompt %q", got)
	}
}

func TestChat(t *testing.T) {
	w := send(t, &texttest.Backend{Answer: "Good day"}, http.MethodPost, "/api/chat", `{"model":"small","messages":[{"role":"user","content":"hi"}],"stream":false}`)
	list := lines(t, w)
	m, _ := list[0]["message"].(map[string]any)
	if len(list) != 1 || m["content"] != "Good day" || m["role"] != "assistant" || list[0]["done"] != true {
		t.Errorf("%s", w.Body)
	}
	call := `<tool_call>{"name":"weather","arguments":{"city":"Oslo"}}</tool_call>`
	w = send(t, &texttest.Backend{Answer: call}, http.MethodPost, "/api/chat", `{"model":"small","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"weather"}}]}`)
	if !strings.Contains(w.Body.String(), `"tool_calls":[{"function":{"name":"weather","arguments":{"city":"Oslo"}}}]`) {
		t.Errorf("%s", w.Body)
	}
	b := &texttest.Backend{Answer: "{}"}
	send(t, b, http.MethodPost, "/api/chat", `{"model":"small","messages":[{"role":"user","content":"hi"}],"format":{"type":"object"}}`)
	if b.Requests[0].Grammar == "" {
		t.Error("the format makes no grammar")
	}
	if w = send(t, b, http.MethodPost, "/api/chat", `{"model":"small"}`); lines(t, w)[0]["done_reason"] != "load" {
		t.Errorf("loading: %s", w.Body)
	}
}

func TestKeepAlive(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		kept       []time.Duration
		reason     string
	}{
		"none":     {"generate", `"prompt":"hi"`, nil, "stop"},
		"null":     {"generate", `"prompt":"hi","keep_alive":null`, nil, "stop"},
		"duration": {"generate", `"prompt":"hi","keep_alive":"5m"`, []time.Duration{5 * time.Minute}, "stop"},
		"seconds":  {"chat", `"messages":[{"role":"user","content":"hi"}],"keep_alive":1.5`, []time.Duration{1500 * time.Millisecond}, "stop"},
		"negative": {"generate", `"prompt":"hi","keep_alive":-1`, []time.Duration{-1}, "stop"},
		"minus":    {"generate", `"prompt":"hi","keep_alive":"-1m"`, []time.Duration{-time.Minute}, "stop"},
		"too long": {"generate", `"prompt":"hi","keep_alive":1e300`, []time.Duration{-1}, "stop"},
		"after":    {"generate", `"prompt":"hi","keep_alive":0`, []time.Duration{0}, "stop"},
		"load":     {"generate", `"keep_alive":-1`, []time.Duration{-1}, "load"},
		"unload":   {"generate", `"keep_alive":0`, []time.Duration{0}, "unload"},
		"chat":     {"chat", `"messages":[],"keep_alive":"0"`, []time.Duration{0}, "unload"},
		"embed":    {"embed", `"input":"hi","keep_alive":"1h"`, []time.Duration{time.Hour}, ""},
		"older":    {"embeddings", `"prompt":"hi","keep_alive":"1h"`, []time.Duration{time.Hour}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := &texttest.Backend{Answer: "Good day"}
			var kept []time.Duration
			s := ollama.New(ollama.Options{Models: b, Keep: func(_ context.Context, name string, idle time.Duration) error {
				if kept = append(kept, idle); name != "small" || b.Released != len(b.Requests) && c.reason == "stop" {
					t.Errorf("kept %s while %d generations use it", name, len(b.Requests)-b.Released)
				}
				return nil
			}})
			w := httptest.NewRecorder()
			body := `{"model":"small:latest","stream":false,` + c.body + `}`
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/"+c.path, strings.NewReader(body)))
			reason, _ := lines(t, w)[0]["done_reason"].(string)
			if w.Code != 200 || reason != c.reason || !slices.Equal(kept, c.kept) {
				t.Errorf("%d %s, kept %v", w.Code, w.Body, kept)
			}
		})
	}
	for _, value := range []string{`"soon"`, `true`, `{}`} {
		w := send(t, &texttest.Backend{}, http.MethodPost, "/api/generate", `{"model":"small","keep_alive":`+value+`}`)
		if w.Code != 400 || !strings.Contains(w.Body.String(), "keep_alive is") {
			t.Errorf("%s: %d %s", value, w.Code, w.Body)
		}
	}
}

// A client that may not unload models gets an answer to a request that would unload one, and an error
// for one that does nothing else.
func TestKeepAliveIsDenied(t *testing.T) {
	s := ollama.New(ollama.Options{Models: &texttest.Backend{Answer: "Good day"}, Keep: func(context.Context, string, time.Duration) error {
		return outboard.Errorf(outboard.Denied, "", "the API key may not")
	}})
	for body, want := range map[string]int{`{"model":"small","prompt":"hi","keep_alive":0}`: 200, `{"model":"small","keep_alive":0}`: 401} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/api/generate", strings.NewReader(body)))
		if w.Code != want {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}

func TestLists(t *testing.T) {
	for path, want := range map[string]string{
		"/api/tags":    `"parameter_size":"1.5B"`,
		"/api/ps":      `"name":"small:latest"`,
		"/api/version": `"version"`,
		"/":            "Ollama is running",
	} {
		if w := send(t, &texttest.Backend{}, http.MethodGet, path, ""); w.Code != 200 || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	w := send(t, &texttest.Backend{}, http.MethodPost, "/api/show", `{"model":"small"}`)
	if !strings.Contains(w.Body.String(), `"llama.context_length":1000`) {
		t.Errorf("show: %s", w.Body)
	}
	if w = send(t, &texttest.Backend{}, http.MethodPost, "/api/show", `{"model":"tiny:latest"}`); w.Code != 200 {
		t.Errorf("show of an alias: %d %s", w.Code, w.Body)
	}
	w = send(t, &texttest.Backend{}, http.MethodPost, "/api/embed", `{"model":"small","input":["b","c"]}`)
	if !strings.Contains(w.Body.String(), `"embeddings":[[0.6,0.8],[0.6,0.8]]`) {
		t.Errorf("embed: %s", w.Body)
	}
}

func TestErrors(t *testing.T) {
	for name, c := range map[string]struct {
		path, body string
		err        error
		status     int
		want       string
	}{
		"model":    {"/api/chat", `{"model":"big"}`, nil, 404, "model 'big' not found"},
		"none":     {"/api/generate", `{}`, nil, 400, "model is required"},
		"JSON":     {"/api/generate", `{`, nil, 400, "unexpected EOF"},
		"format":   {"/api/generate", `{"model":"small","prompt":"a","format":"xml"}`, nil, 400, "format must be"},
		"schema":   {"/api/generate", `{"model":"small","prompt":"a","format":{"pattern":"(?=x)"}}`, nil, 400, "#/pattern"},
		"images":   {"/api/chat", `{"model":"small","messages":[{"role":"user","images":["x"]}]}`, nil, 400, "messages[0].images"},
		"overload": {"/api/generate", `{"model":"small","prompt":"a"}`, outboard.Errorf(outboard.Exhausted, "", "the queue is full"), 503, "the queue is full"},
		"lost":     {"/api/embed", `{"model":"small","input":"a"}`, outboard.Errorf(outboard.Unreachable, "", "the node died"), 503, "input 0: the node died"},
		"pull":     {"/api/pull", `{}`, nil, 501, "outboard models"},
	} {
		w := send(t, &texttest.Backend{Answer: "abc", Err: c.err}, http.MethodPost, c.path, c.body)
		if text, _ := lines(t, w)[0]["error"].(string); w.Code != c.status || !strings.Contains(text, c.want) {
			t.Errorf("%s: %d %s, want %d %q", name, w.Code, w.Body, c.status, c.want)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(`{"model":"small","prompt":"a","format":"json","options":{"stop":["x"]}}`)
	f.Add(`{"model":"small","messages":[{"role":"user","content":"hi"}],"tools":[{"function":{"name":"a"}}],"input":["a"]}`)
	s := ollama.New(ollama.Options{Models: &texttest.Backend{Answer: "abc"}})
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/api/chat", "/api/generate", "/api/embed", "/api/show"} {
			w := httptest.NewRecorder()
			s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
			if w.Code == http.StatusInternalServerError {
				t.Errorf("%s: %s", path, w.Body)
			}
		}
	})
}
