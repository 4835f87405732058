package state

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/outboard-run/outboard/internal/pool/guard"
)

// stamped is an entry of the table as a direct get answers, or as a change.
func stamped(subject, key, value string, more ...string) *guard.Message {
	header := "NATS/1.0\r\nNats-Stream: KV_outboard\r\nNats-Subject: " + keyPrefix + key + "\r\nNats-Sequence: 7\r\n"
	return &guard.Message{Subject: subject, Header: []byte(header + strings.Join(more, "") + "\r\n"), Body: []byte(value)}
}

const (
	teaApp    = `{"versions":[{"number":3,"app":{"app":"cup","tenant":"tea"},"secrets":{"s":"bXluZQ=="}}]}`
	coffeeApp = `{"versions":[{"number":2,"by":"x","app":{"app":"pot","tenant":"coffee"},"secrets":{"s":"dGhlaXJz"}}]}`
)

// TestTenantView: a tenant's process receives its own apps and ticks, the descriptors of services, and
// of others the names and tenants of apps, whatever the way in which it reads.
func TestTenantView(t *testing.T) {
	view := tenantView{"tea"}
	for key, c := range map[string]struct {
		value, want string // want "" for an entry that is hidden
	}{
		"apps.cup":              {teaApp, teaApp},
		"apps.pot":              {coffeeApp, `{"versions":[{"app":{"app":"pot","tenant":"coffee"},"number":2}]}`},
		"apps.gone":             {`{"versions":[],"last":4}`, `{"versions":[],"last":4}`},
		"apps.odd":              {`secret`, `{"versions":[]}`},
		"ticks.tea.1":           {"n", "n"},
		"ticks.coffee.1":        {value: "n"},
		"ticks.te%61.1":         {value: "n"},
		"config.pool":           {"p", "p"},
		"services.n.shop":       {"descriptors", "descriptors"},
		"config.voters":         {value: "v"},
		"nodes.n":               {value: "secret"},
		"model-keys.n.k":        {value: "secret"},
		"tokens.00":             {value: "secret"},
		"leases.n.opencl.0.m":   {value: "secret"},
		"jobs.n.1":              {value: "secret"},
		"policies":              {value: "secret"},
		"identities.n":          {value: "secret"},
		"added-endpoints.n":     {value: "secret"},
		"apps.pot.more":         {coffeeApp, `{"versions":[{"app":{"app":"pot","tenant":"coffee"},"number":2}]}`},
		"hidden":                {value: "secret"},
		"datasets.n.d":          {value: "secret"},
		"unknown.of.a.later.on": {value: "secret"},
	} {
		for _, subject := range []string{"_INBOX.n.1", changesPrefix + key} {
			m := stamped(subject, key, c.value)
			view.deliver(m)
			header, err := nats.DecodeHeadersMsg(m.Header)
			if err != nil {
				t.Fatalf("%s: %v", key, err)
			}
			if string(m.Body) != c.want || header.Get("Nats-Sequence") != "7" {
				t.Errorf("%s: got %q with %v, want %q", key, m.Body, header, c.want)
			}
			if c.want == "" && (header.Get(subjectHeader) != keyPrefix+hiddenKey || !deletion(header.Get)) {
				t.Errorf("%s is named: %v", key, header)
			}
		}
		m := leaderAnswerOf(key, c.value)
		view.deliver(m)
		got, err := decodeLeaderMsg(&nats.Msg{Data: m.Body})
		if string(got.Data) != c.want || (err != nil) != (c.want == "") {
			t.Errorf("%s from the leader: got %q, %v, want %q", key, got.Data, err, c.want)
		}
	}
}

func leaderAnswerOf(key, value string) *guard.Message {
	return &guard.Message{Subject: "_INBOX.n.1", Body: fmt.Appendf(nil,
		`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","message":{"subject":%q,"seq":7,"data":%q}}`,
		keyPrefix+key, base64.StdEncoding.EncodeToString([]byte(value)))}
}

// TestTenantViewPasses: what is no entry of the table arrives as it is.
func TestTenantViewPasses(t *testing.T) {
	for name, m := range map[string]*guard.Message{
		"message":     {Subject: "orders.new", Body: []byte("secret")},
		"its header":  {Subject: "orders.new", Header: []byte("NATS/1.0\r\nX: $KV.outboard.nodes\r\n\r\n"), Body: []byte("x")},
		"end":         {Subject: "_INBOX.n.1", Header: []byte("NATS/1.0 204 EOB\r\nNats-Num-Pending: 0\r\n\r\n")},
		"log":         {Subject: "_INBOX.n.1", Header: []byte("NATS/1.0\r\nNats-Subject: outboard.log.executions.tea.x\r\n\r\n"), Body: []byte("x")},
		"bucket":      {Subject: "_INBOX.n.1", Header: []byte("NATS/1.0\r\nNats-Subject: $KV.outboard-tea-a-b.k\r\n\r\n"), Body: []byte("x")},
		"leader says": {Subject: "_INBOX.n.1", Body: []byte(`{"type":"io.nats.jetstream.api.v1.stream_msg_get_response","error":{"code":404}}`)},
	} {
		before := *m
		tenantView{"tea"}.deliver(m)
		if !bytes.Equal(m.Body, before.Body) || !bytes.Equal(m.Header, before.Header) {
			t.Errorf("%s: became %q, %q", name, m.Header, m.Body)
		}
	}
}

// TestReadsOfTheTable: a tenant's process can't ask for answers by which its view is not applied,
// nor for the list of the keys.
func TestReadsOfTheTable(t *testing.T) {
	p := permissions{node: "n", tenant: "tea"}
	for body, allowed := range map[string]bool{
		"": true, `{"seq":1,"batch":1000,"max_bytes":1,"next_by_subj":"$KV.outboard.>"}`: true, `{"last_by_subj":"$KV.outboard.apps.x"}`: true,
		`{"seq":1,"no_hdr":true}`: false, `{"seq":1,"No_Hdr":true}`: false, `{"multi_last":["$KV.outboard.>"]}`: false,
		`{"subjects_filter":">"}`: false, `{"deleted_details":true}`: false, `{"up_to_seq":1}`: false,
	} {
		for _, api := range []string{"DIRECT.GET.", "STREAM.MSG.GET.", "STREAM.INFO."} {
			if err := p.Publish(guard.Message{Subject: "$JS.API." + api + streamName, Body: []byte(body)}); (err == nil) != allowed {
				t.Errorf("%s %s: %v, want it allowed: %v", api, body, err, allowed)
			}
		}
	}
}

// FuzzTenantView: whatever a foreign app has in its record, nothing but names arrives.
func FuzzTenantView(f *testing.F) {
	f.Add(coffeeApp)
	f.Add(`{"versions":[{"number":1,"app":{"app":"a","tenant":"coffee"}},{"number":2,"app":{"app":"a","tenant":"tea"},"SECRETS":"x"}]}`)
	f.Fuzz(func(t *testing.T, value string) {
		m := stamped("_INBOX.n.1", "apps.pot", value)
		tenantView{"tea"}.deliver(m)
		var all versioned
		if json.Unmarshal(m.Body, &all) != nil {
			t.Fatalf("%q became %q", value, m.Body)
		}
		for _, v := range all.Versions {
			if v.App.Tenant != "tea" && (len(all.Versions) > 1 || v.By != "") {
				t.Errorf("%q became %q", value, m.Body)
			}
		}
	})
}
