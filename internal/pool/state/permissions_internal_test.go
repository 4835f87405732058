package state

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/guard"
)

// TestPermissionsOfKeys: a node that keeps no copy writes only keys that name it, and a tenant's
// process only those of its tenant.
func TestPermissionsOfKeys(t *testing.T) {
	node, tenant := permissions{node: "dinghy"}, permissions{node: "dinghy", tenant: "tea"}
	for subject, allowed := range map[string][2]bool{ // to the node, to the tenant's process
		"nodes.dinghy":                     {true, false},
		"nodes.harbour":                    {},
		"nodes.dinghy.more":                {},
		"endpoints.dinghy":                 {true, false},
		"network.harbour":                  {},
		"config.members.dinghy":            {true, false},
		"config.members.harbour":           {},
		"config.other.dinghy":              {},
		"leases.dinghy.opencl.0.harbour":   {}, // mayTrim is nil
		"leases.harbour.opencl.0.dinghy":   {true, false},
		"leases.harbour.opencl.0.stranger": {},
		"queue.dinghy.7":                   {true, false},
		"queue.harbour.7":                  {},
		"services.dinghy.s":                {true, false},
		"model-usage.k.dinghy":             {true, false},
		"model-usage.k.harbour":            {},
		"model-keys.dinghy.k":              {true, false},
		"model-keys.harbour.k":             {},
		"model-keys.k":                     {}, // of an earlier version, for keepers of the state
		"ticks.tea.app":                    {true, true},
		"ticks.coffee.app":                 {true, false},
		"apps.tea.app":                     {}, // mayVersion is nil
		"authority":                        {},
		"revoked.x":                        {},
	} {
		m := guard.Message{Subject: "$KV.outboard." + subject}
		for i, p := range []permissions{node, tenant} {
			if err := p.Publish(m); (err == nil) != allowed[i] || err != nil && outboard.KindOf(err) != outboard.Denied {
				t.Errorf("%s (tenant %q): %v, want it allowed: %v", subject, p.tenant, err, allowed[i])
			}
		}
	}
}

// TestPermissionsOfVersions: the versions of apps and models are the decision of mayVersion, and a
// tenant's process changes no models.
func TestPermissionsOfVersions(t *testing.T) {
	refused := outboard.Errorf(outboard.Denied, "", "not yours")
	var decision error
	asked := ""
	p := permissions{node: "dinghy", mayVersion: func(key string, _ guard.Message) error { asked = key; return decision }}
	for _, key := range []string{"apps.tea", "models.m"} {
		for _, decision = range []error{nil, refused} {
			asked = ""
			if err := p.Publish(guard.Message{Subject: "$KV.outboard." + key}); (err == nil) != (decision == nil) || asked == "" {
				t.Errorf("%s: got %v, want %v; it was decided about %q", key, err, decision, asked)
			}
		}
	}
	decision, asked = nil, ""
	p.tenant = "tea"
	if err := p.Publish(guard.Message{Subject: "$KV.outboard.models.m"}); err == nil || asked != "" {
		t.Errorf("a tenant's process changed a model: %v", err)
	}
}

// TestPermissionsOfHeaders: a message is stored and has no other effect.
func TestPermissionsOfHeaders(t *testing.T) {
	p := permissions{node: "dinghy"}
	allowed := []string{"", "NATS/1.0\r\nNats-Msg-Id: dinghy.7\r\nNats-TTL: 1\r\n\r\n", "NATS/1.0\r\n\r\n"}
	refused := []string{
		"NATS/1.0\r\nStatus: 404\r\n\r\n",
		"NATS/1.0\r\nNats-TTL: 1\nNats-Subject: $KV.outboard.x\r\n\r\n", // two lines for clients
		"NATS/1.0\r\nNats-TTL: 1\rNats-Subject: $KV.outboard.x\r\n\r\n",
		"NATS/1.0\r\nNats-TTL:\t1\r\n\r\n",
		"NATS/1.0\r\n Nats-TTL: 1\r\n\r\n",
		"NATS/1.0\r\n\r\nNats-TTL: 1\r\n\r\n", // clients read none
		"NATS/1.0\r\nNats-TTL: 1\r\n",
		"NATS/1.0\r\nNats-TTL\r\n\r\n",
		"NATS/1.0\r\nNats-Msg-Id: harbour.7\r\n\r\n",
		"NATS/1.0\r\nNats-Rollup: all\r\n\r\n",
		"NATS/1.0\r\nnats-msg-id: dinghy.7\r\n\r\n", // not as the server spells it
		"NATS/1.0 503\r\n\r\n",
	}
	for _, header := range slices.Concat(allowed, refused) {
		m := guard.Message{Subject: "$KV.outboard.nodes.dinghy"}
		if header != "" {
			m.Header = []byte(header)
		}
		if err := p.Publish(m); (err == nil) != slices.Contains(allowed, header) {
			t.Errorf("%q: %v", header, err)
		}
	}
}

// TestPermissionsOfSubjects: subjects of the server, of other nodes and of the authority are
// refused, as are wildcards.
func TestPermissionsOfSubjects(t *testing.T) {
	inbox := inboxRoot + ".dinghy.tenant-tea.x"
	tenant := permissions{node: "dinghy", tenant: "tea"}
	// By such a reply a message of a batch is one of a batch of another kind to the server, which then
	// leaves the former open.
	if m := (guard.Message{Subject: "outboard.log.steps.tea.1", Reply: inbox + ".10.fail.1.0.$FI"}); tenant.Publish(m) == nil {
		t.Errorf("the reply %s is allowed", m.Reply)
	}
	for subject, allowed := range map[string]bool{
		"rooms.tea.a.b": true, "rooms.coffee.a.b": false, "rooms": false, "events.tea.cup": true, "events.coffee.pot": false,
		"orders.new": true, "orders.*": false, "orders.>": false, "orders..new": false, "": false,
		"$SYS.REQ.USER.INFO": false, "outboard.unknown.x": false,
		"outboard.requests.dinghy": false, "outboard.log.steps.tea.1": true, "outboard.log.steps.coffee.1": false,
		"outboard.log." + authorityLog + ".tea": false, "outboard.commit.tea-b.1": false,
		"$JS.API.STREAM.DELETE." + streamName: false, "$JS.API.STREAM.INFO." + streamName: true,
		"$JS.API.STREAM.UPDATE." + streamName: false, "$JS.API.DIRECT.GET." + streamName: true,
		"$JS.API.STREAM.MSG.GET." + streamName: true, "$JS.API.STREAM.INFO." + logStreamPrefix + authorityLog: false,
		"$JS.API.STREAM.MSG.DELETE." + streamName: false, "$JS.API.CONSUMER.CREATE." + streamName + ".c": false,
		"$JS.API.STREAM.PURGE." + streamName: false, "$JS.API.META": false,
	} {
		if err := tenant.Publish(guard.Message{Subject: subject, Reply: inbox}); (err == nil) != allowed {
			t.Errorf("publish on %q: %v, want it allowed: %v", subject, err, allowed)
		}
	}
	for _, reply := range []string{inboxRoot + ".harbour.x", inboxRoot + ".dinghy.", inboxRoot + ".dinghy.>", inboxRoot + ".dinghy.x", inboxRoot + ".dinghy.tenant-coffee.x", "orders.new"} {
		if err := tenant.Publish(guard.Message{Subject: "orders.new", Reply: reply}); err == nil {
			t.Errorf("an answer to %q was allowed", reply)
		}
	}
	for subject, allowed := range map[string]bool{
		inbox: true, inboxRoot + ".dinghy.": false, inboxRoot + ".dinghy.>": false, inboxRoot + ".dinghy.*.x": false, inboxRoot + ".dinghy.tenant-coffee.>": false,
		inboxRoot + ".dinghy.tenant-tea.": false, "rooms.tea.>": true, "rooms.*.a": false, "rooms.>": false, "rooms": false, "rooms.coffee.>": false, "events.tea.cup": true, "events.coffee.pot": false, inboxRoot + ".harbour.x": false, inboxRoot + ".>": false,
		changesPrefix + ">": true, changesPrefix + "nodes.dinghy": false, "orders.>": true, ">": false, "*.new": false, "": false, "$JS.API.>": false,
	} {
		if costly, err := tenant.Subscribe(subject, ""); (err == nil) != allowed || costly != (subject == changesPrefix+">") {
			t.Errorf("subscribe to %q: %v (costly: %v), want it allowed: %v", subject, err, costly, allowed)
		}
	}
}

// TestPermissionsOfQueues: the group of a trigger, whose members share its messages, is joined only by
// its own tenant.
func TestPermissionsOfQueues(t *testing.T) {
	tenant := permissions{node: "dinghy", tenant: "tea"}
	for queue, allowed := range map[string]bool{"": true, "workers": true, "outboard/tea/cup/work": true, "outboard/coffee/pot/work": false, "outboard/": false, "outboard/tea2/x": false} {
		if _, err := tenant.Subscribe("orders.new", queue); (err == nil) != allowed {
			t.Errorf("join %q: %v, want it allowed: %v", queue, err, allowed)
		}
	}
	if _, err := (permissions{node: "dinghy"}).Subscribe("orders.new", "outboard/coffee/pot/work"); err != nil {
		t.Errorf("a node, which runs the apps of all tenants: %v", err)
	}
}

// TestPermissionsOfLogs: a tenant's process reads and purges its own part of a log, by a request
// that has no unknown keys.
func TestPermissionsOfLogs(t *testing.T) {
	stream := logStreamPrefix + "steps"
	tenant := permissions{node: "dinghy", tenant: "tea"}
	own := tenant.logPrefix(stream)
	if !strings.Contains(own, "tea") {
		t.Fatalf("the prefix of the tenant is %q", own)
	}
	for body, allowed := range map[string]bool{
		`{"last_by_subj":"` + own + `1"}`:                          true,
		`{"last_by_subj":"` + logSubjectPrefix + `steps.other.1"}`: false,
		`{"LAST_BY_SUBJ":"` + own + `1"}`:                          false,
		`{"seq":7}`:                                                false,
		`not JSON`:                                                 false,
	} {
		m := guard.Message{Subject: "$JS.API.STREAM.MSG.GET." + stream, Body: []byte(body)}
		if err := tenant.Publish(m); (err == nil) != allowed {
			t.Errorf("read %s: %v, want it allowed: %v", body, err, allowed)
		}
		if err := (permissions{node: "dinghy"}).Publish(m); err != nil {
			t.Errorf("the node, which runs all tenants, may not read %s: %v", body, err)
		}
	}
	for body, allowed := range map[string]bool{
		`{"filter":"` + own + `1"}`:          true,
		`{"filter":"` + own + `1","seq":3}`:  true,
		`{"filter":"` + own + `>"}`:          false,
		`{"filter":"` + own + `1","keep":1}`: false,
		`{}`:                                 false,
	} {
		m := guard.Message{Subject: "$JS.API.STREAM.PURGE." + stream, Body: []byte(body)}
		if err := tenant.Publish(m); (err == nil) != allowed {
			t.Errorf("purge %s: %v, want it allowed: %v", body, err, allowed)
		}
	}
}

// TestPermissionsOfBuckets: a tenant's process uses the buckets of its tenant, and not those of a
// tenant whose name continues its own.
func TestPermissionsOfBuckets(t *testing.T) {
	for bucket, allowed := range map[string]bool{
		"outboard-tea-shop-stock": true, "outboard-tea-a--b-c--d": true,
		"outboard-tea--house-shop-stock": false, "outboard-tea--": false, "outboard-coffee-shop-stock": false, "outboard-teas-shop-stock": false,
	} {
		p := permissions{node: "dinghy", tenant: "tea"}
		for _, subject := range []string{
			"$KV." + bucket + ".key", "outboard.commit." + bucket + ".writer",
			"$JS.API.DIRECT.GET.KV_" + bucket, "$JS.API.STREAM.INFO.KV_" + bucket, "$JS.API.CONSUMER.INFO.KV_" + bucket + ".c",
		} {
			if err := p.Publish(guard.Message{Subject: subject}); (err == nil) != allowed {
				t.Errorf("%s: %v, want it allowed: %v", subject, err, allowed)
			}
		}
	}
	house := permissions{node: "dinghy", tenant: "tea-house"}
	if err := house.Publish(guard.Message{Subject: "$KV.outboard-tea--house-shop-stock.key"}); err != nil {
		t.Error(err)
	}
}

// TestPermissionsOfConsumers: a consumer of a bucket delivers only to those that pull, and ends.
func TestPermissionsOfConsumers(t *testing.T) {
	bucket := "KV_" + streamName + "-b"
	bucket = strings.TrimPrefix(bucket, "KV_")
	p := permissions{node: "dinghy"}
	if !p.isBucket(bucket) {
		t.Fatalf("%s is no bucket", bucket)
	}
	for body, allowed := range map[string]bool{
		`{"stream_name":"` + bucket + `","config":{"inactive_threshold":1000000000}}`:                                                          true,
		`{"stream_name":"` + bucket + `","config":{}}`:                                                                                         false,
		`{"stream_name":"` + bucket + `","config":{"inactive_threshold":1000000000,"deliver_subject":"x"}}`:                                    false,
		`{"stream_name":"` + streamName + `","config":{"inactive_threshold":1000000000}}`:                                                      false,
		`{"stream_name":"` + bucket + `","config":{"inactive_threshold":9000000000000000000}}`:                                                 false,
		`{"stream_name":"` + bucket + `","config":{"inactive_threshold":1,"filter_subjects":["a","b"]}}`:                                       true,
		`{"stream_name":"` + bucket + `","config":{"inactive_threshold":1,"filter_subjects":["` + strings.Repeat(`a","`, maxFilters) + `"]}}`:  false,
		`{"stream_name":"` + bucket + `","config":{"inactive_threshold":1,"metadata":{"a":"` + strings.Repeat("a", maxConsumerConfig) + `"}}}`: false,
	} {
		if err := p.Publish(guard.Message{Subject: "$JS.API.CONSUMER.CREATE." + bucket + ".c", Body: []byte(body)}); (err == nil) != allowed {
			t.Errorf("%s: %v, want it allowed: %v", body, err, allowed)
		}
	}
}

// TestPermissionsOfNewStreams: a node creates no logs in names of its own, and no buckets of tenants that
// have no app.
func TestPermissionsOfNewStreams(t *testing.T) {
	hasApps := func(tenant string) error {
		if tenant != "tea" {
			return outboard.Errorf(outboard.Unreachable, "", "no app")
		}
		return nil
	}
	node, tenant := permissions{node: "dinghy", hasApps: hasApps}, permissions{node: "dinghy", tenant: "coffee", hasApps: hasApps}
	bucket := func(name string) jetstream.StreamConfig { return newKV(nil, streamName[len("KV_"):]+"-"+name).config() }
	log := func(name string) jetstream.StreamConfig { return newLog(nil, name).config(LogOptions{}) }
	for name, c := range map[string]struct {
		p       permissions
		config  jetstream.StreamConfig
		allowed bool
	}{
		"a bucket of a tenant that has an app":             {node, bucket("tea-cup-x"), true},
		"a bucket of one that has none":                    {node, bucket("coffee-pot-x"), false},
		"a bucket of the tenant whose process it is":       {tenant, bucket("coffee-pot-x"), true},
		"a bucket of another tenant, by that process":      {tenant, bucket("tea-cup-x"), false},
		"the log of executions":                            {node, log("executions"), true},
		"the log of executions, by a tenant's process":     {tenant, log("executions"), true},
		"a log in an invented name":                        {node, log("invented"), false},
		"a log in an invented name, by a tenant's process": {tenant, log("invented"), false},
	} {
		c.config.Replicas = 1
		body, err := json.Marshal(c.config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.p.Publish(guard.Message{Subject: "$JS.API.STREAM.CREATE." + c.config.Name, Body: body}); (err == nil) != c.allowed {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestRemovedKeysAreCharged: a key that is removed is kept for a while, so a node that removes keys in
// invented names fills the table, too.
func TestRemovedKeysAreCharged(t *testing.T) {
	tables := &nodeTables{limit: 64 << 10, log: slog.New(slog.DiscardHandler), all: map[string]*share{}, spawn: func(func(context.Context)) {}}
	p := permissions{node: "dinghy", tables: tables}
	write := func(key, value string, header string) error {
		return p.Publish(guard.Message{Subject: keyPrefix + "services.dinghy." + key, Body: []byte(value), Header: []byte(header)})
	}
	const remove = "NATS/1.0\r\nKV-Operation: DEL\r\n\r\n"
	for i := 0; write(fmt.Sprint(i), "x", "NATS/1.0\r\n\r\n") == nil; i++ {
		if i > 1000 {
			t.Fatal("a node may write any number of keys")
		}
	}
	if err := write("1", "", remove); err != nil {
		t.Errorf("a node that has filled the table can't remove a key: %v", err)
	}
	for i := 0; ; i++ {
		if err := write(fmt.Sprint("invented", i), "", remove); err != nil {
			if outboard.KindOf(err) != outboard.Exhausted {
				t.Error(err)
			}
			break
		}
		if i > 1000 {
			t.Fatal("a node may remove any number of keys")
		}
	}
}
