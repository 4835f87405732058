package tenant

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
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

// An execution whose arena is full ends with an error that says so, and so does a start whose input is too
// large for it.
func TestFullArena(t *testing.T) {
	b := openTenant(t)
	b.mustDeploy("app: shop\nfunctions: {cart: {module: guest.wasm, limits: {window: 1MiB}}}\nworkflows: {order: order.yaml}\n"+
		"routes: [{path: /order, workflow: order, wait: true}]\n", map[string]string{
		"order.yaml": "document: {dsl: '1.0.0', namespace: shop, name: order, version: '1.0.0'}\ndo:\n  - one: {call: cart, with: {body: big 700000}}\n  - two: {call: cart, with: {body: big 700000}}\n",
	})
	for name, input := range map[string]string{"results": "{}", "input": strings.Repeat("x", 2<<20)} {
		w := b.request("POST", "/shop/order", input)
		if w.Code < 500 || w.Code == http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "arena limit of 1MiB reached") || !strings.Contains(w.Body.String(), "limits.window") {
			t.Errorf("%s: status %d, %s", name, w.Code, w.Body)
		}
	}
}
