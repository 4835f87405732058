package pool_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// part returns a message of a batch of a log, of which the last one commits.
func part(batch string, number int, last bool) *nats.Msg {
	m := message("outboard.log.executions.t.shop."+batch, "x", "Nats-Batch-Id", batch, "Nats-Batch-Sequence", fmt.Sprint(number))
	if last {
		m.Header["Nats-Batch-Commit"] = []string{"1"}
	}
	return m
}

// A joined node that was taken over begins batches and ends none: the server has room for 50 in a
// stream. Those of others succeed, and so do its own that end.
func TestOpenBatchesOfAHostileNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 0, 0)
	log, err := a.state.OpenLog(ctx, "executions", state.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	x := intrude(ctx, t, a, b)
	for i := range 100 {
		if err := x.nc.PublishMsg(part(fmt.Sprint("open", i), 1, false)); err != nil {
			t.Fatal(err)
		}
	}
	if err := x.nc.PublishMsg(part("own", 1, false)); err != nil {
		t.Fatal(err)
	}
	// The server processes the messages of a stream in order.
	answer, err := x.nc.RequestMsgWithContext(ctx, part("own", 2, true))
	if err != nil {
		t.Fatal(err)
	}
	var stored struct {
		Seq   uint64          `json:"seq"`
		Error json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &stored); err != nil || stored.Seq != 2 || stored.Error != nil {
		t.Errorf("a batch beside 100 open ones is answered with %s, error %v", answer.Data, err)
	}
	if keys, err := log.Keys(ctx, ""); err != nil || len(keys) != 1 {
		t.Errorf("the log has the keys %v, error %v", keys, err)
	}
	for name, header := range map[string][]string{
		"a number that the server can't read": {"Nats-Batch-Id", "c", "Nats-Batch-Sequence", "2x"},
		"no number":                           {"Nats-Batch-Id", "c"},
		"an end that the server can't read":   {"Nats-Batch-Id", "c", "Nats-Batch-Sequence", "1", "Nats-Batch-Commit", "yes"},
		"an end without a message":            {"Nats-Batch-Id", "c", "Nats-Batch-Sequence", "1", "Nats-Batch-Commit", "eob"},
		"no batch":                            {"Nats-Batch-Sequence", "1"},
	} {
		x.denied(name, message("outboard.log.executions.t.shop.c", "x", header...))
	}
}

// creation returns the request for a new stream.
func creation(t *testing.T, c jetstream.StreamConfig) *nats.Msg {
	t.Helper()
	body, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return message("$JS.API.STREAM.CREATE."+c.Name, string(body))
}

// A joined node creates no streams in names that it invents: each takes files and memory of the nodes
// that keep the state.
func TestStreamsOfAHostileNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 0, 0)
	if _, err := a.state.OpenLog(ctx, "executions", state.LogOptions{}); err != nil {
		t.Fatal(err)
	}
	x := intrude(ctx, t, a, b)
	log := func(name string) jetstream.StreamConfig { // as nodes create it
		return jetstream.StreamConfig{
			Name: "outboard_" + name, Description: "a log of an Outboard pool", Subjects: []string{"outboard.log." + name + ".>"},
			MaxMsgSize: state.MaxValue, Discard: jetstream.DiscardNew, Duplicates: 30 * time.Second, AllowDirect: true,
			AllowAtomicPublish: true, Replicas: 1,
		}
	}
	x.allowed("the log of executions", creation(t, log("executions")))
	x.denied("a log in an invented name", creation(t, log("invented")))
	app := func(tenant string) []byte {
		return fmt.Appendf(nil, `{"versions":[{"by":"b","app":{"app":"shop","tenant":%q}}]}`, tenant)
	}
	if _, err := b.state.Update(ctx, "apps/shop", app("tea"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := b.state.OpenKV(ctx, "outboard-tea-shop-orders"); err != nil {
		t.Errorf("a bucket of a tenant that has an app: %v", err)
	}
}

// The grants of other nodes count for their holders: the node of a device only removes from them.
func TestGrantsOfAHostileNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 0, 1)
	x := intrude(ctx, t, a, b)
	x.denied("a grant to a node that is not there", message("$KV.outboard.leases.b.opencl.0.invented", "[]"))
	x.denied("a grant to another node", message("$KV.outboard.leases.b.opencl.0.a", "[]"))
	if _, err := a.state.Put(ctx, "leases/b/opencl/0/a", []byte(`[{"lease":"x"},{"lease":"y"}]`), 0); err != nil {
		t.Fatal(err)
	}
	x.allowed("fewer grants", message("$KV.outboard.leases.b.opencl.0.a", `[{"lease":"x"}]`))
	x.denied("larger ones", message("$KV.outboard.leases.b.opencl.0.a", string(make([]byte, 20<<10))))
}

// A joined node does not deploy apps of ever more tenants: every node runs a process for each.
func TestTenantsOfAHostileNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 0, 0)
	app := func(name, tenant, by string) *nats.Msg {
		return message("$KV.outboard.apps."+name, fmt.Sprintf(`{"versions":[{"by":%q,"app":{"app":%q,"tenant":%q}}]}`, by, name, tenant),
			"Nats-Expected-Last-Subject-Sequence", "0")
	}
	x := intrude(ctx, t, a, b)
	answers, err := x.nc.SubscribeSync("_INBOX.b.answers")
	if err != nil {
		t.Fatal(err)
	}
	for i := range 50 { // at once
		m := app(fmt.Sprint("shop", i), fmt.Sprint("invented", i), "b")
		m.Reply = answers.Subject
		if err := x.nc.PublishMsg(m); err != nil {
			t.Fatal(err)
		}
	}
	deployed := 0
	for range 50 {
		m, err := answers.NextMsgWithContext(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(m.Data), `"error"`) {
			deployed++
		}
	}
	if deployed != 32 {
		t.Errorf("a node deployed the apps of %d new tenants", deployed)
	}
	x.allowed("another app of one of them", app("more", "invented1", "b"))
	if _, err := a.state.Put(ctx, "apps/tea", app("tea", "tea", "a").Data, 0); err != nil {
		t.Fatal(err)
	}
	x.allowed("an app of a tenant of others", app("tea2", "tea", "b"))
}
