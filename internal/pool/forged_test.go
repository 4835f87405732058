package pool_test

import (
	"bufio"
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/pool/state"
)

// published publishes a message whose header is a text, which no client library would write, and
// returns the answer.
func published(t *testing.T, d throughNode, subject, header, body string) string {
	t.Helper()
	conn, err := d.InProcessConn()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if deadline, ok := d.ctx.Deadline(); ok {
		_ = conn.SetDeadline(deadline)
	}
	reply := "_INBOX." + string(d.with.name) + ".forged"
	if _, err := fmt.Fprintf(conn, "CONNECT {\"headers\":true}\r\nSUB %s 1\r\nHPUB %s %s %d %d\r\n%s%s\r\n",
		reply, subject, reply, len(header), len(header)+len(body), header, body); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(conn)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "MSG ") {
			lines.Scan()
			return lines.Text()
		}
	}
	t.Fatalf("no answer: %v", lines.Err())
	return ""
}

// A joined node stores no entry of the table that readers take for another one, for the end of the
// table, or for an error: by a header that looks like the server's own, by one that ends a line for
// clients and not for the server, and by another spelling of a key.
func TestForgedEntries(t *testing.T) {
	t.Parallel()
	ctx := testContext(t)
	a, b := founderAndJoined(ctx, t, 1, 1)
	eventually(ctx, t, "both nodes", func() bool { return len(a.Nodes()) == 2 && len(b.Devices()) == 2 })
	if _, err := a.state.Put(ctx, "apps/shop", []byte(`{"versions":[{"by":"a"}]}`), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := a.state.Put(ctx, "models/chosen", []byte(versionOf("a")), 0); err != nil {
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
	through := throughNode{ctx, a, b}
	refused := func(what, subject, header, body string) {
		t.Helper()
		if answer := published(t, through, subject, "NATS/1.0\r\n"+header+"\r\n", body); !strings.Contains(answer, `"code":403`) {
			t.Errorf("%s: allowed, with the answer %s", what, answer)
		}
	}
	const own = "$KV.outboard.services.b.s"
	for _, status := range []string{"404", "204", "503", "100"} {
		refused("the status "+status, own, "Status: "+status+"\r\n", "{}")
		refused("the status "+status+" in a log", "outboard.log.executions.t.shop.1", "Status: "+status+"\r\n", "{}")
	}
	for _, forged := range []string{"Nats-Subject: $KV.outboard.policies", "Nats-Sequence: 1000000", "Status: 404", "KV-Operation: DEL"} {
		refused("a line that ends for clients: "+forged, own, "KV-Operation: x\n"+forged+"\r\n", "{}")
		refused("a line that ends for clients: "+forged, own, "X: y\n"+forged+"\r\n", "{}")
		refused("the same in a log", "outboard.log.executions.t.shop.1", "Nats-Msg-Id: x\n"+forged+"\r\n", "{}")
	}
	refused("a header that ends early", own, "\r\nNats-Subject: $KV.outboard.policies\r\n", "{}")
	const mine = `{"versions":[{"by":"b"}]}`
	for _, key := range []string{"apps.%73hop", "apps.sh%6Fp", "models.%63hosen"} {
		refused("another spelling of "+key, "$KV.outboard."+key, "Nats-Expected-Last-Subject-Sequence: 0\r\n", mine)
	}
	refused("another spelling of a grant's key", "$KV.outboard.leases.%61.opencl.0.b", "", "[]")
	refused("an escape that is none", "$KV.outboard.services.b.%zz", "", "{}")
	after := snapshot(ctx, t, a)
	for key, value := range before {
		now, ok := after[key]
		if !ok && strings.HasPrefix(key, "tokens/") {
			continue // The mark of the spent token expires after authority.JoinTimeout.
		}
		if !ok || now != value && !strings.HasPrefix(key, "nodes/") {
			t.Errorf("%s was %q and is %q", key, value, now)
		}
	}
	if records, err := log.Read(ctx, "t/shop/1"); err != nil || len(records) != 1 {
		t.Errorf("the log has %d records, error %v, want 1", len(records), err)
	}
}
