package process

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// Events repeat what earlier ones had, or have only what is new; the tokens are the same.
func TestSGLangEvents(t *testing.T) {
	for name, events := range map[string][]string{
		"repeated": {
			`{"text":"a","output_ids":[1],"meta_info":{"completion_tokens":1,"finish_reason":null}}`,
			`{"text":"abc","output_ids":[1,2,3],"meta_info":{"completion_tokens":3,"finish_reason":null}}`,
			`{"text":"abc","output_ids":[1,2,3,4],"meta_info":{"completion_tokens":4,"finish_reason":{"type":"stop","matched":4}}}`,
		},
		"incremental": {
			`{"text":"a","output_ids":[1],"meta_info":{"completion_tokens":1,"finish_reason":null}}`,
			`{"text":"bc","output_ids":[2,3],"meta_info":{"completion_tokens":3,"finish_reason":null}}`,
			`{"text":"","output_ids":[4],"meta_info":{"completion_tokens":4,"finish_reason":{"type":"stop","matched":4}}}`,
		},
	} {
		a := &answer{}
		var ids []int32
		var text string
		var last engine.FinishReason
		for _, event := range events {
			tokens, err := sglang{}.event(nil, a, []byte(event))
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			for _, token := range tokens {
				ids, text, last = append(ids, token.ID), text+token.Text, token.Last
			}
		}
		if !slices.Equal(ids, []int32{1, 2, 3, 4}) || text != "abc" || last != engine.FinishStop {
			t.Errorf("%s: %v %q %q", name, ids, text, last)
		}
	}
	for _, event := range []string{
		`{"text":"x","output_ids":[1],"meta_info":{"completion_tokens":3}}`, `{"output_ids":[],"meta_info":{"completion_tokens":-1}}`,
		`{"text":"b","output_ids":[1,2],"meta_info":{"completion_tokens":2}}`, `{"output_ids":[1,2],"meta_info":{"completion_tokens":2,"output_token_logprobs":[["a"]]}}`,
	} {
		if _, err := (sglang{}).event(nil, &answer{received: 1, text: "a"}, []byte(event)); outboard.KindOf(err) != outboard.Protocol {
			t.Errorf("%s: %v", event, err)
		}
	}
	if _, err := (sglang{}).event(nil, &answer{}, []byte(`{"meta_info":{"finish_reason":{"type":"abort","message":"no memory"}}}`)); outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("an aborted generation: %v", err)
	}
}

// A conversation is rendered without the token that begins each text (7), which would be added again.
func TestRenderWithoutBeginning(t *testing.T) {
	for _, kind := range []string{"sglang", "vllm"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			var q struct {
				Prompt   *string         `json:"prompt"`
				Messages json.RawMessage `json:"messages"`
				IDs      []int32         `json:"tokens"`
			}
			_ = json.NewDecoder(r.Body).Decode(&q)
			ids := []int32{7}
			switch {
			case q.Prompt != nil:
				for _, c := range *q.Prompt {
					ids = append(ids, c-'0')
				}
			case q.Messages != nil:
				ids = append(ids, 8)
			default:
				var text string
				for _, id := range q.IDs {
					text += string('0' + id)
				}
				_ = json.NewEncoder(w).Encode(map[string]string{"text": text, "prompt": text})
				return
			}
			_ = json.NewEncoder(w).Encode(map[string]any{"tokens": ids})
		}))
		m := newTextModel(Server{Kind: kind, URL: server.URL})
		text, err := m.Render(t.Context(), engine.Conversation{Messages: json.RawMessage(`[]`), Prompt: true})
		if err != nil || text != "8" {
			t.Errorf("%s: %q, %v", kind, text, err)
		}
		server.Close()
	}
}
