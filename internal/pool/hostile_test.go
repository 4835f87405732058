package pool_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// throughNode speaks NATS with the table's servers through a node.
type throughNode struct {
	ctx      context.Context //nolint:containedctx // the interface leaves no other way
	at, with *testNode       // the node that it asks, and the one whose certificate it has
}

func (d throughNode) InProcessConn() (net.Conn, error) {
	dialer := tls.Dialer{Config: d.with.id.AnyNodeTLS(state.Protocol)}
	conn, err := dialer.DialContext(d.ctx, "tcp", d.at.addr)
	if err != nil {
		return nil, err
	}
	_, err = conn.Read(make([]byte, 1))
	return conn, err
}

// intruder is a NATS client with a joined node's own credentials.
type intruder struct {
	t  *testing.T
	nc *nats.Conn
	js jetstream.JetStream
}

// founderAndJoined starts a node and one that joins it, with that many devices each. Their records and
// leases last for the whole test.
func founderAndJoined(ctx context.Context, t *testing.T, devicesA, devicesB int) (a, b *testNode) {
	t.Helper()
	a, b = newTestNode(t, "a", devicesA), newTestNode(t, "b", devicesB)
	for _, n := range []*testNode{a, b} {
		n.opts.NodeTTL, n.opts.LeaseTTL = time.Minute, time.Minute
	}
	a.up(ctx, nil)
	b.up(ctx, a)
	return a, b
}

func intrude(ctx context.Context, t *testing.T, at, with *testNode) *intruder {
	t.Helper()
	nc, err := nats.Connect("", nats.InProcessServer(throughNode{ctx, at, with}), nats.CustomInboxPrefix("_INBOX."+string(with.name)),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.NoReconnect())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	x := &intruder{t, nc, js}
	x.denied("the very first request", message("$JS.API.STREAM.DELETE.KV_outboard", ""))
	return x
}

// denied makes a request, and wants it refused.
func (x *intruder) denied(what string, m *nats.Msg) {
	x.t.Helper()
	answer, err := x.nc.RequestMsg(m, 2*time.Minute)
	if err != nil {
		x.t.Errorf("%s: no refusal: %v", what, err)
		return
	}
	var a struct {
		Error struct {
			Code int `json:"code"`
		} `json:"error"`
	}
	if err := json.Unmarshal(answer.Data, &a); err != nil || a.Error.Code != 403 {
		x.t.Errorf("%s: allowed, with the answer %.200q", what, answer.Data)
	}
}

func message(subject, body string, header ...string) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: []byte(body)}
	for i := 0; i < len(header); i += 2 {
		if m.Header == nil {
			m.Header = nats.Header{}
		}
		m.Header[header[i]] = []string{header[i+1]}
	}
	return m
}

// A joined node that was taken over has its own certificate, and speaks NATS as it likes.
func TestHostileJoinedNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 1, 1)
	eventually(ctx, t, "both nodes", func() bool { return len(a.Nodes()) == 2 && len(b.Devices()) == 2 })
	lease := acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	if _, err := a.state.Put(ctx, "policies", []byte(`{"versions":[{"by":"a"}]}`), 0); err != nil {
		t.Fatal(err)
	}
	revision, err := a.state.Put(ctx, "apps/shop", []byte(`{"versions":[{"by":"a"}]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	log, err := a.state.OpenLog(ctx, "executions", state.LogOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(ctx, "t/shop/1", 0, []byte("started")); err != nil {
		t.Fatal(err)
	}
	before := snapshot(ctx, t, a)
	x := intrude(ctx, t, a, b)
	x.readsNoKey()
	x.writesNothingOfOthers(a.id.Fingerprint(), revision)
	x.leavesStreamsAlone()
	x.borrowsNoRights()
	x.hearsNobody()
	for key, value := range snapshot(ctx, t, a) {
		if was, ok := before[key]; ok && was != value && !strings.HasPrefix(key, "nodes/") && !strings.HasPrefix(key, "leases/") {
			t.Errorf("%s was %q and is %q", key, was, value)
		}
	}
	if records, err := log.Read(ctx, "t/shop/1"); err != nil || len(records) != 1 {
		t.Errorf("the log has %d records, error %v, want 1", len(records), err)
	}
	if _, err := a.Renew(ctx, lease); err != nil {
		t.Errorf("the other node's lease: %v", err)
	}
}

// A joined node lists its own devices only, each once: a request for a device that is listed twice, or
// that is another node's, would be tried again and again.
func TestDevicesOfHostileNodes(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 1, 0)
	eventually(ctx, t, "both nodes", func() bool { return len(a.Nodes()) == 2 && len(a.Devices()) == 1 })
	record, ok := a.Node("b")
	if !ok {
		t.Fatal("there is no record of b")
	}
	own := func(id string, node outboard.NodeID) outboard.Device {
		return outboard.Device{ID: outboard.DeviceID(id), Node: node, API: "opencl", Memory: 1 << 50}
	}
	for name, devices := range map[string][]outboard.Device{
		"of another node":         {own("a/opencl/0", "a")},
		"by its own name":         {own("a/opencl/0", "b")},
		"in another node's name":  {own("b/opencl/0", "a")},
		"twice":                   {own("b/opencl/0", "b"), own("b/opencl/0", "b")},
		"of a node with its name": {own("bb/opencl/0", "b")},
	} {
		record.Devices = devices
		text, err := json.Marshal(record)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.state.Put(ctx, "nodes/b", text, 0); err != nil {
			t.Fatal(err)
		}
		lease := acquire(ctx, t, a, pool.Request{Selector: selector(t, "a/opencl/0"), NoWait: true})[0] // its view has the record afterwards
		if got := a.Devices(); len(got) != 1 || got[0].Memory == 1<<50 {
			t.Errorf("%s: devices %+v", name, got)
		}
		if _, err := a.Acquire(ctx, pool.Request{Selector: selector(t, "api=opencl"), Count: 2, NoWait: true}); outboard.KindOf(err) != outboard.NoDevice {
			t.Errorf("%s: two devices: %v", name, err)
		}
		if err := a.Release(ctx, lease); err != nil {
			t.Fatal(err)
		}
	}
}

// A joined node that was taken over does not fill the table, all of which every node keeps in memory.
func TestTableOfAHostileNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 0, 0)
	value := make([]byte, 500<<10)
	stored := 0
	for ; stored < 200; stored++ {
		if _, err := b.state.Put(ctx, "services/b/s"+strconv.Itoa(stored), value, 0); err != nil {
			if outboard.KindOf(err) != outboard.Exhausted || !strings.Contains(err.Error(), "entries of node b have 64MiB") {
				t.Error(err)
			}
			break
		}
	}
	if stored < 100 || stored > 140 {
		t.Errorf("%d values of 500 KiB were stored", stored)
	}
	if _, err := a.state.Put(ctx, "config/x", nil, 0); err != nil {
		t.Errorf("another node: %v", err)
	}
}

// A joined node that was taken over sends requests for tokens without end: those of other nodes do not
// wait for them, and its tokens are bounded, each of which is an entry of the table.
func TestRequestsOfAHostileNode(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 0, 0)
	x := intrude(ctx, t, a, b)
	answers, err := x.nc.SubscribeSync("_INBOX.b.answers")
	if err != nil {
		t.Fatal(err)
	}
	request := message("outboard.requests.b", `{"token_ttl":2592000000000000}`)
	request.Reply = answers.Subject
	tokens := 0
	for refused := false; !refused && tokens < 2000; {
		for range 16 {
			if err := x.nc.PublishMsg(request); err != nil {
				t.Fatal(err)
			}
		}
		for range 16 {
			m, err := answers.NextMsgWithContext(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(m.Data), "have not expired") {
				refused = true
			} else {
				tokens++
			}
		}
	}
	if tokens != 1000 {
		t.Errorf("it got %d tokens", tokens)
	}
}

func snapshot(ctx context.Context, t *testing.T, n *testNode) map[string]string {
	t.Helper()
	entries, err := n.state.Entries(ctx, "")
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string]string)
	for _, e := range entries {
		all[e.Key] = string(e.Value)
	}
	return all
}

// readsNoKey tries all ways to read the authority's key.
func (x *intruder) readsNoKey() {
	x.t.Helper()
	subject := "outboard.log.authority.keys"
	last := `{"last_by_subj":"` + subject + `"}`
	for _, api := range []string{"DIRECT.GET.", "STREAM.MSG.GET.", "STREAM.INFO.", "STREAM.SNAPSHOT.", "CONSUMER.LIST."} {
		x.denied(api, message("$JS.API."+api+"outboard_authority", last))
	}
	x.denied("direct get by subject", message("$JS.API.DIRECT.GET.outboard_authority."+subject, ""))
	pull := `{"stream_name":"outboard_authority","config":{"name":"c","ack_policy":"none","inactive_threshold":1000000000,"mem_storage":true}}`
	x.denied("consumer", message("$JS.API.CONSUMER.CREATE.outboard_authority.c", pull))
	x.denied("consumer of another stream", message("$JS.API.CONSUMER.CREATE.KV_outboard-t-a-n.c", pull))
	x.denied("next message", message("$JS.API.CONSUMER.MSG.NEXT.outboard_authority.c", "1"))
	for name, config := range map[string]string{
		"mirror":    `{"name":"KV_outboard-t-a-n","mirror":{"name":"outboard_authority"}}`,
		"source":    `{"name":"outboard_copy","subjects":["x"],"sources":[{"name":"outboard_authority"}]}`,
		"republish": `{"name":"KV_outboard-t-a-n","subjects":["$KV.outboard-t-a-n.>"],"republish":{"src":">","dest":"x.>"}}`,
		"capture":   `{"name":"outboard_all","subjects":["_INBOX.>"]}`,
	} {
		var c struct {
			Name string `json:"name"`
		}
		if err := json.Unmarshal([]byte(config), &c); err != nil {
			x.t.Fatal(err)
		}
		x.denied(name, message("$JS.API.STREAM.CREATE."+c.Name, config))
		x.denied(name, message("$JS.API.STREAM.UPDATE."+c.Name, config))
	}
}

// writesNothingOfOthers tries to write what other nodes, or nodes that keep the state, own.
func (x *intruder) writesNothingOfOthers(fingerprint string, app uint64) {
	x.t.Helper()
	for _, key := range []string{
		"nodes.a", "identities.a", "identities.b", "admissions.b", "revoked." + fingerprint, "tokens.00", "policies", "config.voters", "config.ready",
		"config.roots", "config.former-keepers", "config.members.a", "endpoints.a", "added-endpoints.a", "services.a.s", "leases.a.opencl.0.a", "leases.a.opencl.0",
		"queue.a.1", "queue.1", "model-keys.a.1", "model-keys.1", "model-usage.1.a", "apps.shop", "new", "nodes.b.more", "nodes.*", "nodes.>",
	} {
		x.denied("write "+key, message("$KV.outboard."+key, `{"id":"a"}`))
		x.denied("delete "+key, message("$KV.outboard."+key, "", "KV-Operation", "DEL"))
	}
	mine := `{"versions":[{"by":"b"}]}`
	rev := func(n uint64) string { text, _ := json.Marshal(n); return string(text) }
	x.denied("the other node's app", message("$KV.outboard.apps.shop", mine, "Nats-Expected-Last-Subject-Sequence", rev(app)))
	x.denied("a later revision of it", message("$KV.outboard.apps.shop", mine, "Nats-Expected-Last-Subject-Sequence", rev(app+1000)))
	x.denied("an app in another name", message("$KV.outboard.apps.new", `{"versions":[{"by":"a"}]}`, "Nats-Expected-Last-Subject-Sequence", "0"))
	for _, header := range []string{"Nats-Rollup", "Nats-Marker-Reason", "Nats-Schedule", "Nats-Expected-Stream"} {
		x.denied(header, message("$KV.outboard.nodes.b", "{}", header, "all"))
		x.denied(header+" in a log", message("outboard.log.executions.t.shop.1", "{}", header, "all"))
	}
	x.denied("another node's message id", message("$KV.outboard.nodes.b", "{}", "Nats-Msg-Id", "a.1"))
	x.denied("the authority's log", message("outboard.log.authority.keys", "{}"))
	x.denied("a change that nobody made", message("outboard.changes.nodes.a", "{}", "Nats-Subject", "$KV.outboard.nodes.a"))
	x.denied("a request in another name", message("outboard.requests.a", `{"token_ttl":60000000000}`))
}

// leavesStreamsAlone tries to delete and to empty streams.
func (x *intruder) leavesStreamsAlone() {
	x.t.Helper()
	for _, stream := range []string{"KV_outboard", "outboard_executions", "outboard_authority"} {
		for _, verb := range []string{"STREAM.DELETE.", "STREAM.PURGE.", "STREAM.UPDATE.", "STREAM.MSG.DELETE.", "STREAM.LEADER.STEPDOWN.", "STREAM.PEER.REMOVE.", "STREAM.RESTORE."} {
			x.denied(verb+stream, message("$JS.API."+verb+stream, `{}`))
		}
		x.denied("purge all of "+stream, message("$JS.API.STREAM.PURGE."+stream, `{"filter":">"}`))
	}
	x.denied("another log's part", message("$JS.API.STREAM.PURGE.outboard_executions", `{"filter":"outboard.log.authority.keys"}`))
	x.denied("two filters", message("$JS.API.STREAM.PURGE.outboard_executions", `{"filter":"outboard.log.executions.t.x","Filter":">"}`))
	for _, verb := range []string{"META.LEADER.STEPDOWN", "SERVER.REMOVE", "ACCOUNT.PURGE.$G", "INFO", "STREAM.NAMES"} {
		x.denied(verb, message("$JS.API."+verb, `{}`))
	}
}

// borrowsNoRights tries to have the server, or another node, publish what it may not publish
// itself: as an answer, or from a stream.
func (x *intruder) borrowsNoRights() {
	x.t.Helper()
	for _, subject := range []string{"$JS.API.STREAM.INFO.KV_outboard", "$JS.API.DIRECT.GET.KV_outboard", "outboard.requests.b", "orders.new"} {
		for _, reply := range []string{"$KV.outboard.nodes.a", "$KV.outboard.policies", "_INBOX.a.1", "outboard.changes.x", "_INBOX.b.*"} {
			if err := x.nc.PublishRequest(subject, reply, []byte(`{"last_by_subj":"$KV.outboard.nodes.b"}`)); err != nil {
				x.t.Fatal(err)
			}
		}
	}
	push := `{"stream_name":"outboard_executions","config":{"name":"c","deliver_subject":"$KV.outboard.nodes.a"}}`
	x.denied("a consumer that pushes", message("$JS.API.CONSUMER.CREATE.outboard_executions.c", push))
	push = strings.ReplaceAll(push, "outboard_executions", "KV_outboard-t-a-n")
	x.denied("a consumer that pushes", message("$JS.API.CONSUMER.CREATE.KV_outboard-t-a-n.c", push))
	x.denied("with a key that folds", message("$JS.API.CONSUMER.CREATE.KV_outboard-t-a-n.c",
		`{"stream_name":"KV_outboard-t-a-n","config":{"name":"c","inactive_threshold":1,"deliver_\u017fubject":"$KV.outboard.nodes.a"}}`))
}

// hearsNobody tries to receive what is meant for others.
func (x *intruder) hearsNobody() {
	x.t.Helper()
	heard := make(chan *nats.Msg, 1000)
	for _, subject := range []string{">", "*.>", "_INBOX.>", "_INBOX.a.>", "_INBOX.*.x", "$KV.>", "$JS.>", "outboard.>", "outboard.requests.>", "outboard.log.>"} {
		if _, err := x.nc.ChanSubscribe(subject, heard); err != nil {
			x.t.Fatal(err)
		}
	}
	// A request that is answered comes back when all before it was looked at.
	if _, err := x.nc.Request("$JS.API.STREAM.INFO.KV_outboard", nil, 2*time.Minute); err != nil {
		x.t.Error(err)
	}
	select {
	case m := <-heard:
		x.t.Errorf("heard %s: %.100q", m.Subject, m.Data)
	default:
	}
}

// A joined node does what is its own: it leases, makes tokens, admits nodes and deploys.
func TestJoinedNodeWorks(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := newTestNode(t, "a", 1), newTestNode(t, "b", 0)
	a.up(ctx, nil)
	b.up(ctx, a)
	eventually(ctx, t, "the device", func() bool { return len(b.Devices()) == 1 })
	lease := acquire(ctx, t, b, pool.Request{Selector: selector(t, "a/opencl/0")})[0]
	if _, err := b.Renew(ctx, lease); err != nil {
		t.Error(err)
	}
	if err := b.Release(ctx, lease); err != nil {
		t.Error(err)
	}
	if _, err := b.state.Update(ctx, "apps/mine", []byte(`{"versions":[{"by":"b"}]}`), 0, 0); err != nil {
		t.Error("its own app:", err)
	}
	other, err := a.state.Put(ctx, "apps/other", []byte(`{"versions":[{"by":"a"}]}`), 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = b.state.Update(ctx, "apps/other", []byte(`{"versions":[{"by":"b"}]}`), other, 0)
	if want := "write apps/other: node a wrote its last version: change it there, or on a node that keeps the pool's state"; err == nil || err.Error() != want {
		t.Errorf("another node's app: %q, want %q", err, want)
	}
	c := newTestNode(t, "c", 0)
	c.up(ctx, b) // with a token of b, at b
	eventually(ctx, t, "three nodes", func() bool { return len(a.Nodes()) == 3 })
	if _, err := b.state.Put(ctx, "policies", []byte("{}"), 0); outboard.KindOf(err) != outboard.Denied && !b.state.KeepsCopy() {
		t.Errorf("policies of a joined node: %v, want a refusal", err)
	}
	if err := b.Remove(ctx, "c", pool.DefaultAway); outboard.KindOf(err) != outboard.Denied && !b.state.KeepsCopy() {
		t.Errorf("a joined node removes another: %v, want a refusal", err)
	}
	if log, err := b.state.OpenLog(ctx, state.AuthorityLog, state.LogOptions{}); err == nil && !b.state.KeepsCopy() {
		t.Errorf("a joined node opens the authority's log: %v", log)
	} else if errors.Is(err, context.DeadlineExceeded) {
		t.Error("the refusal takes until the deadline")
	}
}
