package pool_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// allowed makes a request, and wants it answered without an error.
func (x *intruder) allowed(what string, m *nats.Msg) {
	x.t.Helper()
	answer, err := x.nc.RequestMsg(m, 2*time.Minute)
	if err != nil {
		x.t.Errorf("%s: %v", what, err)
		return
	}
	var a struct {
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &a); err == nil && a.Error != nil {
		x.t.Errorf("%s: refused: %s", what, a.Error)
	}
}

// versionOf returns the history of a model with one version that a node wrote.
func versionOf(by string, aliases ...string) string {
	text, _ := json.Marshal(map[string]any{"versions": []any{map[string]any{"by": by, "config": map[string]any{"aliases": aliases}}}})
	return string(text)
}

// TestTakenOverNode does what docs/security.md says that a node without a copy of the state can
// still do when somebody has taken it over, line by line, and sees what of it ends when the node
// is removed. What it cannot do is in TestHostileJoinedNode.
func TestTakenOverNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 1, 0)
	eventually(ctx, t, "both nodes", func() bool { return len(a.Nodes()) == 2 && len(b.Devices()) == 1 })
	log, err := a.state.OpenLog(ctx, "executions", state.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(ctx, "t/shop/1", 0, []byte("started")); err != nil {
		t.Fatal(err)
	}
	if _, err := a.state.Put(ctx, "apps/shop", []byte(`{"versions":[{"by":"a","secret":"s"}]}`), 0); err != nil {
		t.Fatal(err)
	}
	x := intrude(ctx, t, a, b)
	x.allowed("append to a tenant's log", message("outboard.log.executions.t.shop.1", "forged"))
	x.allowed("claim a tenant's schedule", message("$KV.outboard.ticks.t.shop", "b"))
	x.allowed("offer a service", message("$KV.outboard.services.b.s", "{}"))
	x.allowed("offer endpoints", message("$KV.outboard.endpoints.b", "[]"))
	x.allowed("make an API key", message("$KV.outboard.model-keys.b.1", "{}"))
	x.allowed("report models as loaded", message("$KV.outboard.modelreports.b", "{}"))
	x.denied("report them for another node", message("$KV.outboard.modelreports.a", "{}"))
	push := func(name string, aliases ...string) *nats.Msg {
		return message("$KV.outboard.models."+name, versionOf("b", aliases...), "Nats-Expected-Last-Subject-Sequence", "0")
	}
	if _, err := a.state.Put(ctx, "models/chosen", []byte(versionOf("a", "alias")), 0); err != nil {
		t.Fatal(err)
	}
	x.allowed("push a model", push("m", "other"))
	x.allowed("push one with the same alias as another of its models", push("n", "other"))
	x.denied("push a model with an alias of another node's", push("before", "other", "alias"))
	x.denied("push a model whose name is an alias of another node's", push("alias"))
	if e, err := b.state.Get(ctx, "apps/shop"); err != nil || len(e.Value) == 0 {
		t.Errorf("read the table: %v", err)
	}
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	token := b.token(ctx)

	// It grants itself the device once more: the device's node does not honour that.
	more := lease
	more.Lease = "more"
	claim, err := b.Claim(more)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Check(ctx, claim); err == nil {
		t.Error("a grant that the node gave itself counts")
	}

	if err := a.Remove(ctx, "b", pool.DefaultAway); err != nil {
		t.Fatal(err)
	}
	eventually(ctx, t, "its lease ends", func() bool { return len(a.Leases()) == 0 })
	for _, key := range []string{"services/b/s", "endpoints/b", "modelreports/b", "nodes/b", "identities/b"} {
		if _, err := a.state.GetLatest(ctx, key); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%s is there after the removal: %v", key, err)
		}
	}
	c := newTestNode(t, "c", 0)
	if err := c.enter(ctx, pool.EnterOptions{Join: a.addr, Token: token}); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("the token that it made: %v, want Denied", err)
	}
	b.kill()
}
