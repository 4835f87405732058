package openai

import (
	"encoding/json"
	"testing"
)

// Whatever a call has, the model that answers is the one that it names.
func FuzzParseCall(f *testing.F) {
	f.Add([]byte(`{"model":"a","request":{"model":"b","messages":[{"role":"user","content":"hi"}]}}`))
	f.Add([]byte(`{"model":"a","request":null}`))
	f.Add([]byte(`{"request":{"Model":"b"}}`))
	f.Fuzz(func(t *testing.T, encoded []byte) {
		q, err := parseCall(encoded)
		if err != nil {
			return
		}
		var c ChatCall
		if err := json.Unmarshal(encoded, &c); err != nil || q.Model != c.Model {
			t.Fatalf("the model is %q, the call names %q (%v)", q.Model, c.Model, err)
		}
		_, _ = q.chat()
	})
}
