package ollama_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

// A member or an option that would be ignored is refused with its name, unless its value asks for
// nothing.
func TestMembersThatAreNotSupported(t *testing.T) {
	for members, want := range map[string]string{
		`"context":[1,2]`:                   "",
		`"context":["a"]`:                   "context",
		`"context":[]`:                      "",
		`"raw":true,"context":[1]`:          "raw mode",
		`"suffix":"a"`:                      "",
		`"suffix":"a","raw":true`:           "suffix",
		`"template":"{{ .Prompt }}"`:        "template",
		`"images":["a"]`:                    "images",
		`"raw":true,"system":"be short"`:    "raw mode",
		`"shift":true`:                      "shift",
		`"shift":false`:                     "",
		`"think":true`:                      `"small" does not support thinking`,
		`"think":"high"`:                    "think",
		`"think":"much"`:                    "think is",
		`"think":5`:                         "think is",
		`"think":false`:                     "",
		`"think":true,"raw":true`:           "thinking",
		`"top_logprobs":2`:                  "top_logprobs",
		`"logprobs":true,"top_logprobs":21`: "top_logprobs",
		`"options":{"mirostat":2}`:          "options.mirostat",
		`"options":{"mirostat":0,"mirostat_tau":5.0,"tfs_z":1,"typical_p":1.0,"penalize_newline":false}`: "",
		`"options":{"typical_p":0.5}`:                          "options.typical_p",
		`"options":{"tfs_z":0.5}`:                              "options.tfs_z",
		`"options":{"penalize_newline":true}`:                  "options.penalize_newline",
		`"options":{"temprature":1}`:                           "options.temprature",
		`"options":{"num_gpu":1,"num_batch":512,"num_keep":5}`: "",
		`"options":{"repeat_last_n":-1}`:                       "repeat_last_n",
		`"options":{"repeat_last_n":64,"num_thread":null}`:     "",
		`"options":{"num_ctx":8}`:                              "options.num_ctx",
		`"options":null`:                                       "",
	} {
		w := send(t, &texttest.Backend{Answer: "abc"}, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","stream":false,`+members+`}`)
		text, _ := lines(t, w)[0]["error"].(string)
		if (want == "") != (w.Code == 200) || !strings.Contains(text, want) {
			t.Errorf("%s: %d %s", members, w.Code, w.Body)
		}
	}
	w := send(t, &texttest.Backend{}, http.MethodPost, "/api/embed", `{"model":"small","input":"abcdef","truncate":false,"options":{"num_ctx":3}}`)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "options.num_ctx is 3") {
		t.Errorf("embed: %d %s", w.Code, w.Body)
	}
}

func TestOptions(t *testing.T) {
	generation := func(options string) *texttest.Backend {
		b := &texttest.Backend{Answer: "abc"}
		send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","options":{`+options+`}}`)
		return b
	}
	a, b := generation(`"seed":-1`).Requests[0], generation(`"seed":-1`).Requests[0]
	if a.Sampling.Seed == b.Sampling.Seed {
		t.Errorf("seed -1 is not random: %d", a.Sampling.Seed)
	}
	if g := generation(`"repeat_penalty":2,"presence_penalty":1,"repeat_last_n":0`).Requests[0]; g.Sampling.RepeatPenalty != 0 || g.Sampling.PresencePenalty != 0 {
		t.Errorf("penalties of no token: %+v", g.Sampling)
	}
	for options, want := range map[string]int{`"num_ctx":20`: 12, `"num_ctx":20,"num_predict":5`: 5, `"num_ctx":20,"num_predict":50`: 12} { // the prompt has 8
		if g := generation(options).Requests[0]; g.MaxTokens != want {
			t.Errorf("%s: %d tokens", options, g.MaxTokens)
		}
	}
}

func TestLogProbs(t *testing.T) {
	for path, prompt := range map[string]string{"/api/generate": `"prompt":"hi"`, "/api/chat": `"messages":[{"role":"user","content":"hi"}]`} {
		body := `{"model":"small",` + prompt + `,"logprobs":true,"top_logprobs":2`
		w := send(t, &texttest.Backend{Answer: "abcd"}, http.MethodPost, path, body+`,"stream":false}`)
		want := `"logprobs":[{"token":"abc","logprob":-0.5,"bytes":[97,98,99],"top_logprobs":[{"token":"abc","logprob":-0.5,"bytes":[97,98,99]},` +
			`{"token":"x","logprob":-1,"bytes":[120]}]},{"token":"d",`
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %s", path, w.Body)
		}
		for i, line := range lines(t, send(t, &texttest.Backend{Answer: "abcd"}, http.MethodPost, path, body+`}`)) {
			if list, _ := line["logprobs"].([]any); len(list) != 1 && line["done"] == false {
				t.Errorf("%s: line %d is %v", path, i, line)
			}
		}
	}
}

// A reply of generate has the tokens of the conversation, which a later request continues.
func TestContext(t *testing.T) {
	rendered := []int32{1, 'r', 'e', 'n', 'd', 'e', 'r', 'e', 'd'} // the answer has the tokens 0 and 1
	for members, want := range map[string][]int32{``: rendered, `,"context":null`: rendered, `,"context":[1,7,8]`: slices.Concat([]int32{1, 7, 8}, rendered[1:])} {
		for _, stream := range []string{"true", "false"} {
			b := &texttest.Backend{Answer: "abcd", Begin: true}
			list := lines(t, send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","stream":`+stream+members+`}`))
			var returned []int32
			got, _ := list[len(list)-1]["context"].([]any)
			for _, token := range got {
				number, _ := token.(float64)
				returned = append(returned, int32(number))
			}
			if !slices.Equal(b.Requests[0].Prompt, want) || !slices.Equal(returned, slices.Concat(want, []int32{0, 1})) {
				t.Errorf("%q, stream %s: the prompt %v, then the context %v", members, stream, b.Requests[0].Prompt, returned)
			}
			for _, line := range list[:len(list)-1] {
				if line["context"] != nil {
					t.Errorf("%v", line)
				}
			}
		}
	}
	for path, prompt := range map[string]string{"/api/generate": `"prompt":"hi","raw":true`, "/api/chat": `"messages":[{"role":"user","content":"hi"}]`} {
		w := send(t, &texttest.Backend{Answer: "abcd"}, http.MethodPost, path, `{"model":"small",`+prompt+`}`)
		if strings.Contains(w.Body.String(), `"context"`) {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// An answer within a format has no thoughts, although the prompt begins them.
func TestFormatAfterBegunThoughts(t *testing.T) {
	b := &texttest.Backend{Answer: `{"a":1}`, Template: "{{ messages }}<think>"}
	b.Rendered = "<think>"
	w := send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","format":"json","stream":false}`)
	if got := lines(t, w)[0]["response"]; got != `{"a":1}` {
		t.Errorf("%s", w.Body)
	}
}

// The thoughts of a model are separated from its answer.
func TestThinking(t *testing.T) {
	const template = "{{ tools }}{% if enable_thinking %}<think>"
	b := &texttest.Backend{Answer: "<think>\nhm, a <b\n</think>\n\nGood day", Template: template}
	for think, variables := range map[string]string{`true`: `{"enable_thinking":true}`, `false`: `{"enable_thinking":false}`, `null`: ""} {
		body := `{"model":"small","messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"x","thinking":"before"}],"think":` + think
		b.Conversations = nil
		m, _ := lines(t, send(t, b, http.MethodPost, "/api/chat", body+`,"stream":false}`))[0]["message"].(map[string]any)
		if m["content"] != "Good day" || m["thinking"] != "hm, a <b\n" {
			t.Errorf("think %s: %v", think, m)
		}
		if c := b.Conversations[0]; string(c.Variables) != variables || !strings.Contains(string(c.Messages), `"reasoning_content":"before"`) {
			t.Errorf("think %s: variables %s for %s", think, c.Variables, c.Messages)
		}
		thinking, content := "", ""
		for _, line := range lines(t, send(t, b, http.MethodPost, "/api/chat", body+`}`)) {
			m, _ := line["message"].(map[string]any)
			more, _ := m["thinking"].(string)
			answer, _ := m["content"].(string)
			thinking, content = thinking+more, content+answer
		}
		if content != "Good day" || thinking != "hm, a <b\n" {
			t.Errorf("think %s, streamed: %q and %q", think, thinking, content)
		}
	}
	w := send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","stream":false}`)
	if v := lines(t, w)[0]; v["response"] != "Good day" || v["thinking"] != "hm, a <b\n" {
		t.Errorf("generate: %v", v)
	}
	if w = send(t, b, http.MethodPost, "/api/show", `{"model":"small"}`); !strings.Contains(w.Body.String(), `["completion","tools","thinking"]`) {
		t.Errorf("show: %s", w.Body)
	}
	b.Template = "<think>"
	if w = send(t, b, http.MethodPost, "/api/generate", `{"model":"small","prompt":"hi","think":false}`); w.Code != 400 {
		t.Errorf("thoughts that cannot be turned off: %d %s", w.Code, w.Body)
	}
}

func TestToolsWithoutAPlace(t *testing.T) {
	w := send(t, &texttest.Backend{Answer: "abc", Template: "{{ messages }}"}, http.MethodPost, "/api/chat",
		`{"model":"small","messages":[{"role":"user","content":"hi"}],"tools":[{"type":"function","function":{"name":"weather"}}]}`)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "does not support tools") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
