package openai_test

import (
	"math"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/model/text/texttest"
)

// A member that would be ignored is refused with its name, unless its value asks for nothing.
func TestMembersThatAreNotSupported(t *testing.T) {
	const chat, completions, embeddings = "/v1/chat/completions", "/v1/completions", "/v1/embeddings"
	for _, c := range []struct{ path, members, param string }{
		{chat, `"guided_json":{}`, "guided_json"},
		{chat, `"functions":[{"name":"a"}]`, "functions"},
		{chat, `"functions":[],"function_call":null`, ""},
		{chat, `"function_call":{"name":"a"}`, "function_call"},
		{chat, `"function_call":"none"`, ""},
		{chat, `"store":true`, "store"},
		{chat, `"store":false,"service_tier":"auto","verbosity":"medium","audio":null,"prediction":null`, ""},
		{chat, `"service_tier":"flex"`, ""},
		{chat, `"service_tier":"gold"`, "service_tier"},
		{chat, `"moderation":null,"prompt_cache_options":{}`, ""},
		{chat, `"moderation":{"model":"m"}`, "moderation"},
		{chat, `"ignore_eos":false,"min_tokens":0,"stop_token_ids":[],"skip_special_tokens":true,"add_generation_prompt":true`, ""},
		{chat, `"length_penalty":1.0,"use_beam_search":false,"guided_json":null,"bad_words":null,"prompt_logprobs":null`, ""},
		{chat, `"cache_prompt":true,"n_predict":-1,"repeat_penalty":1,"typical_p":1.0,"mirostat":0,"samplers":[],"grammar":""`, ""},
		{chat, `"ignore_eos":true`, ""},
		{chat, `"ignore_eos":true,"response_format":{"type":"json_object"}`, "ignore_eos"},
		{chat, `"skip_special_tokens":false`, "skip_special_tokens"},
		{chat, `"stop_token_ids":[1]`, "stop_token_ids"},
		{chat, `"prompt_logprobs":0`, "prompt_logprobs"},
		{chat, `"mirostat":2`, "mirostat"},
		{chat, `"repeat_penalty":1.1`, "repeat_penalty"},
		{chat, `"include_reasoning":true,"separate_reasoning":true,"stream_reasoning":true,"reasoning_format":"auto"`, ""},
		{chat, `"separate_reasoning":false`, "separate_reasoning"},
		{chat, `"reasoning_format":"none"`, "reasoning_format"},
		{chat, `"unheard_of":null`, "unheard_of"},
		{completions, `"prompt":"a","ignore_eos":false,"add_special_tokens":true`, "add_special_tokens"},
		{chat, `"verbosity":"low"`, "verbosity"},
		{chat, `"prediction":{"type":"content","content":"x"}`, ""},
		{chat, `"web_search_options":{}`, "web_search_options"},
		{chat, `"reasoning_effort":"high"`, "reasoning_effort"},
		{chat, `"reasoning_effort":"none"`, ""},
		{chat, `"top_logprobs":2`, "top_logprobs"},
		{chat, `"top_logprobs":0`, ""},
		{chat, `"stream_options":{"include_usage":true}`, "stream_options"},
		{chat, `"stream":true,"stream_options":{"include_obfuscation":true}`, "stream_options.include_obfuscation"},
		{chat, `"stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}`, ""},
		{chat, `"stream_options":null,"user":"u","metadata":{"a":"b"},"safety_identifier":"x","prompt_cache_key":"y"`, ""},
		{chat, `"logit_bias":{"256":1}`, "logit_bias"},
		{chat, `"logit_bias":{"-1":1}`, "logit_bias"},
		{chat, `"logit_bias":{"255":1}`, ""},
		{chat, `"response_format":{"type":"json_schema","json_schema":{"name":"x","strict":true,"description":"d","schema":{"type":"null"}}}`, ""},
		{completions, `"prompt":"a","echo":true,"logprobs":1`, "echo"},
		{completions, `"prompt":"a","logit_bias":{"256":1}`, "logit_bias"},
		{completions, `"prompt":"a","min_tokens":3`, "min_tokens"},
		{completions, `"prompt":"a","user":"u","suffix":null,"best_of":1`, ""},
		{completions, `"prompt":"a","suffix":"b","echo":true`, "suffix"},
		{completions, `"prompt":[97],"suffix":"b"`, "suffix"},
		{embeddings, `"input":"a","user":"u"`, ""},
		{embeddings, `"input":"a","truncate":true`, "truncate"},
	} {
		body := `{"model":"small",` + c.members + `}`
		if c.path == chat {
			body = `{` + hello + `,` + c.members + `}`
		}
		w := post(t, &texttest.Backend{Answer: "null"}, c.path, body)
		if c.param == "" {
			if w.Code != 200 {
				t.Errorf("%s: %d %s", c.members, w.Code, w.Body)
			}
			continue
		}
		if got := at(t, w.Body.Bytes(), "error", "param"); w.Code != 400 || got != c.param {
			t.Errorf("%s: %d, param %v: %s", c.members, w.Code, got, w.Body)
		}
	}
}

// The answer names the tier that has executed its request.
func TestServiceTier(t *testing.T) {
	for members, want := range map[string]string{`"n":1`: "", `"service_tier":"flex"`: `"service_tier":"default"`} {
		for _, stream := range []string{"true", "false"} {
			w := post(t, &texttest.Backend{Answer: "x"}, "/v1/chat/completions", `{`+hello+`,`+members+`,"stream":`+stream+`}`)
			if got := strings.Contains(w.Body.String(), `"service_tier"`); got != (want != "") || !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s: %s", members, w.Body)
			}
		}
	}
}

// A member without a value is left out where OpenAI's schema wants a text, and a list is there where it
// may be empty.
func TestResponsesFitTheSchema(t *testing.T) {
	for _, stream := range []string{"true", "false"} {
		w := post(t, &texttest.Backend{Answer: "x"}, "/v1/chat/completions", `{`+hello+`,"stream":`+stream+`}`)
		if strings.Contains(w.Body.String(), "system_fingerprint") {
			t.Errorf("a fingerprint without a value: %s", w.Body)
		}
		if stream == "false" && !strings.Contains(w.Body.String(), `"annotations":[]`) {
			t.Errorf("no annotations: %s", w.Body)
		}
	}
}

// With continuous_usage_stats all events have the counts of tokens until then.
func TestContinuousUsage(t *testing.T) {
	for path, input := range map[string]string{"/v1/chat/completions": hello, "/v1/completions": `"model":"small","prompt":"a"`} {
		w := post(t, &texttest.Backend{Answer: "abc"}, path, `{`+input+`,"stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}`)
		counted := 0
		for event := range strings.SplitSeq(w.Body.String(), "\n\n") {
			data, isEvent := strings.CutPrefix(event, "data: {")
			if !isEvent {
				continue
			}
			count, known := at(t, []byte("{"+data), "usage", "completion_tokens").(float64)
			if !known || int(count) < counted {
				t.Errorf("%s: after %d tokens: %s", path, counted, event)
			}
			counted = int(count)
		}
		if counted == 0 {
			t.Errorf("%s: %s", path, w.Body)
		}
	}
}

// As in vLLM, a lower priority is executed first; for engines a higher one is.
func TestPriority(t *testing.T) {
	b := &texttest.Backend{Answer: "x"}
	post(t, b, "/v1/completions", `{"model":"small","prompt":"a","priority":-5}`)
	if got := b.Requests[0].Priority; got != 5 {
		t.Errorf("priority %d for the engine, which takes higher ones first", got)
	}
}

// Without parallel calls an answer ends with its first call.
func TestOneCallOfATool(t *testing.T) {
	call := `<tool_call>{"name":"weather","arguments":{"city":"Oslo"}}</tool_call>`
	for members, want := range map[string]int{`"parallel_tool_calls":false`: 1, `"parallel_tool_calls":true`: 2, `"parallel_tool_calls":null`: 2} {
		body := `{` + hello + `,` + tools + `,` + members
		b := &texttest.Backend{Answer: call + call + " and then"}
		w := post(t, b, "/v1/chat/completions", body+`}`)
		calls, _ := at(t, w.Body.Bytes(), "choices", 0, "message", "tool_calls").([]any)
		if got := at(t, w.Body.Bytes(), "choices", 0, "finish_reason"); len(calls) != want || got != "tool_calls" {
			t.Errorf("%s: %d %s", members, w.Code, w.Body)
		}
		w = post(t, b, "/v1/chat/completions", body+`,"stream":true}`)
		if got := strings.Count(w.Body.String(), `"name":"weather"`); got != want || !strings.Contains(w.Body.String(), `"finish_reason":"tool_calls"`) {
			t.Errorf("%s: %d calls in\n%s", members, got, w.Body)
		}
	}
}

// A model whose template has no place for tools does not learn of them.
func TestToolsWithoutAPlace(t *testing.T) {
	for choice, want := range map[string]int{"auto": 400, "required": 200, "none": 200} {
		b := &texttest.Backend{Answer: `{"name": "weather", "arguments": {"city":"Oslo"}}`, Template: "{{ messages }}"}
		w := post(t, b, "/v1/chat/completions", `{`+hello+`,`+tools+`,"tool_choice":"`+choice+`"}`)
		if w.Code != want {
			t.Errorf("%s: %d %s", choice, w.Code, w.Body)
		}
	}
}

// The effort of reasoning is a variable of the templates that have one.
func TestReasoningEffort(t *testing.T) {
	for _, c := range []struct{ template, members, want string }{
		{"{{ reasoning_effort }}", `"reasoning_effort":"low"`, `{"reasoning_effort":"low"}`},
		{"{{ reasoning_effort }}", `"reasoning_effort":"low","chat_template_kwargs":{"a":1}`, `{"a":1,"reasoning_effort":"low"}`},
		{"{% if enable_thinking %}", `"reasoning_effort":"none"`, `{"enable_thinking":false}`},
		{"{{ messages }}", `"chat_template_kwargs":{"a":1}`, `{"a":1}`},
	} {
		b := &texttest.Backend{Answer: "x", Template: c.template}
		w := post(t, b, "/v1/chat/completions", `{`+hello+`,`+c.members+`}`)
		if w.Code != 200 || string(b.Conversations[0].Variables) != c.want {
			t.Errorf("%s with %s: %d, variables %s", c.members, c.template, w.Code, string(b.Conversations[0].Variables))
		}
	}
}

// An impossible token has no finite logarithm, which JSON needs.
func TestImpossibleTokens(t *testing.T) {
	b := &texttest.Backend{Answer: "x", LogProb: float32(math.Inf(-1))}
	w := post(t, b, "/v1/completions", `{"model":"small","prompt":"a","logprobs":2}`)
	if got := at(t, w.Body.Bytes(), "choices", 0, "logprobs", "token_logprobs", 0); got != -9999.0 {
		t.Errorf("completions: %s", w.Body)
	}
	w = post(t, b, "/v1/chat/completions", `{`+hello+`,"logprobs":true}`)
	if got := at(t, w.Body.Bytes(), "choices", 0, "logprobs", "content", 0, "logprob"); got != -9999.0 {
		t.Errorf("chat: %s", w.Body)
	}
}

// A list of texts is refused before it is decoded if it has too many elements; all forms have errors
// with the member's name.
func TestPromptLists(t *testing.T) {
	for prompt, want := range map[string]int{
		`"a"`: 200, `["a","b"]`: 200, `[ "a" ]`: 200, `[97,98]`: 200, `[[97],[98]]`: 200, `[null]`: 400, `null`: 400, `[]`: 400, `["a",1]`: 400, `[97,"a"]`: 400,
		`[[97],"a"]`: 400, `{}`: 400, `true`: 400, `5`: 400, `[` + strings.Repeat(`[97],`, 5000) + `[97]]`: 400, `[` + strings.Repeat(`"a",`, 5000) + `"a"]`: 400,
	} {
		w := post(t, &texttest.Backend{Answer: "x"}, "/v1/completions", `{"model":"small","prompt":`+prompt+`}`)
		if w.Code != want {
			t.Errorf("%.40s: %d %s", prompt, w.Code, w.Body)
		}
	}
	w := post(t, &texttest.Backend{}, "/v1/embeddings", `{"model":"small","input":[`+strings.Repeat(`[97],`, 5000)+`[97]]}`)
	if w.Code != 400 || !strings.Contains(w.Body.String(), "too many") {
		t.Errorf("%d %s: many lists of tokens are decoded", w.Code, w.Body)
	}
}
