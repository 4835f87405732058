package tenant

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// A workflow sees the data of the message that starts it, and an input that is no JSON as a reference.
func TestMessageIsData(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: shop\nworkflows: {kind: kind.yaml}\nsubjects: [{subject: shop.new, workflow: kind}]\n", map[string]string{
		"kind.yaml": "document: {dsl: '1.0.0', namespace: shop, name: kind, version: '1.0.0'}\ndo: [{kind: {set: '${ {kind: .kind, reference: has(\"$value\")} }'}}]\n",
	})
	for message, want := range map[string]string{
		`{"kind": "daily"}`: `{"kind":"daily","reference":false}`,
		"no JSON":           `{"kind":null,"reference":true}`,
	} {
		answer, err := b.tenant.state.Request(t.Context(), "shop.new", []byte(message))
		for errors.Is(err, nats.ErrNoResponders) && t.Context().Err() == nil { // the app subscribes
			answer, err = b.tenant.state.Request(t.Context(), "shop.new", []byte(message))
		}
		if err != nil {
			t.Fatal(err)
		}
		var started struct{ Execution engine.ID }
		if err := json.Unmarshal(answer, &started); err != nil || started.Execution == "" {
			t.Fatalf("%s: %v", answer, err)
		}
		r, err := b.tenant.engine.Wait(t.Context(), started.Execution)
		if err != nil || string(r.Output) != want {
			t.Errorf("%s: %s, %v, %v; want %s", message, r.Output, r.Error, err, want)
		}
	}
}
