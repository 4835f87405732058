package policy

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// TestVariables holds what expressions see of a call.
func TestVariables(t *testing.T) {
	order := encoded(t, "Order", `user: "ann" total: 7 items { sku: "s" price: 3 } placed { seconds: 60 } state: PAID`)
	tests := map[string]bool{
		`tenant == "gold" && peer == "10.0.0.7"`:                               true,
		`service == "shop.Orders" && method == "Place"`:                        true,
		`metadata["a"] == "1"`:                                                 true,
		`"a" in metadata && !("z" in metadata)`:                                true,
		`has(metadata.a) && !has(metadata.z)`:                                  true,
		`metadata[?"z"].orValue("none") == "none"`:                             true,
		`metadata.size() == 2`:                                                 true,
		`metadata.exists(k, k == "b-bin" && metadata[k].size() == 1)`:          true,
		`metadata == {"a": "1", "b-bin": "x"}`:                                 true,
		`attempt == 2`:                                                         true,
		`now == timestamp("2026-11-20T12:00:00Z")`:                             true,
		`deadline - now > duration("1h")`:                                      true,
		`request.user == "ann" && request.total in [7, 8]`:                     true,
		`request.items[0].price == 3 && request.items.exists(i, i.sku == "s")`: true,
		`has(request.address) || request.address.country == ""`:                true,
		`request.placed == timestamp(60)`:                                      true,
		`request.state == 1`:                                                   true,
		`request.user.upperAscii() == "ANN"`:                                   true,
		`tenant.matches("^g.*d$")`:                                             true,
		`tenant == "silver"`:                                                   false,
	}
	for text, want := range tests {
		t.Run(text, func(t *testing.T) {
			s := parsed(t, "policies:\n- name: a\n  services: [shop.Orders]\n  when: |\n    "+text+"\n  timeout: 1s\n")
			v := &visit{tenant: "gold", peer: "10.0.0.7", payload: order, metadata: metadata.MD{"a": {"1", "2"}, "b-bin": {"x"}}}
			x := v.exchange()
			x.Head.Attempt = 2
			if err := s.For(x.Head).Begin(x); err != nil {
				t.Fatal(err)
			}
			if got := x.Plan.Timeout != 0; got != want {
				t.Errorf("got %v, want %v", got, want)
			}
			if failed := s.Policies()[0].Failed; failed != 0 {
				t.Errorf("the policy could not judge")
			}
		})
	}
}

// TestIdentities: a policy names who calls: a user of one node, a tenant, or a caller that proves
// nothing, whose text is no identity of another kind.
func TestIdentities(t *testing.T) {
	const when = `caller_kind == "user" && caller_name == "1000" && caller_node == "harbour" || caller_kind == "tenant" && caller_name == "shop"`
	for tenant, c := range map[string]struct {
		node string
		want bool
	}{
		"uid:1000": {"harbour", true}, "uid:1000\x20": {"harbour", false}, "tenant:shop": {"dinghy", true}, "tenant:other": {"harbour", false}, "": {"harbour", false},
		"shop": {"harbour", false}, "node:models": {"harbour", false}, "user:1000": {"dinghy", false}, "uid:10000": {"harbour", false},
	} {
		s := parsed(t, "policies:\n- name: a\n  when: |\n    "+when+"\n  timeout: 1s\n")
		v := &visit{tenant: tenant}
		x := v.exchange()
		x.Node = c.node
		if err := s.For(x.Head).Begin(x); err != nil {
			t.Fatal(err)
		}
		if got := x.Plan.Timeout != 0; got != c.want || s.Policies()[0].Failed != 0 {
			t.Errorf("%q at %s: got %v, want %v", tenant, c.node, got, c.want)
		}
	}
	// The same user of another node is somebody else.
	s := parsed(t, "policies:\n- name: a\n  when: |\n    "+when+"\n  timeout: 1s\n")
	x := (&visit{tenant: "uid:1000"}).exchange()
	x.Node = "dinghy"
	if err := s.For(x.Head).Begin(x); err != nil || x.Plan.Timeout != 0 {
		t.Errorf("a user of another node: %v, %v", x.Plan.Timeout, err)
	}
}

// TestDecodedOnce counts how often the payload is asked for: never by what needs only
// the head, and once by all that need a field.
func TestDecodedOnce(t *testing.T) {
	const head = `
- {name: a, when: 'tenant == "gold"', timeout: 1s}
- {name: b, access: {rules: [{allow: {tenants: [gold]}}]}}
- {name: c, rate: {rate: 100/s, key: peer}}
- {name: d, rewrite: {metadata: {set: {x: tenant}}}}
- {name: e, log: {fields: {t: tenant}}}
`
	const field = `
- {name: f, services: [shop.Orders], when: 'tenant == "gold" && request.total > 3', timeout: 1s}
- {name: g, services: [shop.Orders], when: 'tenant == "gold" && request.user == ""', sample: 1}
- {name: h, services: [shop.Orders], when: 'tenant == "gold"', rate: {rate: 100/s, key: request.user}}
`
	tests := map[string]struct {
		text, tenant string
		needs        bool
		want         int
	}{
		"head":               {head, "gold", false, 0},
		"fields":             {head + field, "gold", true, 1},
		"fields not reached": {field, "silver", true, 0},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := parsed(t, "policies:"+test.text)
			v := &visit{tenant: test.tenant}
			x, c, err := v.begin(s)
			if err != nil {
				t.Fatal(err)
			}
			v.end(x, c)
			if v.asked != test.want || c.Request() != test.needs {
				t.Errorf("asked %d times, want %d; the chain says %v", v.asked, test.want, c.Request())
			}
		})
	}
}

// TestGivenMessage lets a message that is decoded already be judged, of a type that
// is not the descriptors'.
func TestGivenMessage(t *testing.T) {
	s := parsed(t, "policies: [{name: a, services: [shop.Orders], when: request.items.size() > 1, access: {rules: []}}]")
	v := &visit{}
	x := v.exchange()
	x.Request = func() (protoreflect.Message, error) {
		return message(t, "Order", `items {} items {}`), nil // from another registry
	}
	if err := s.For(x.Head).Begin(x); code(err) != codes.PermissionDenied || v.asked != 0 {
		t.Errorf("got %v, and the payload was asked for %d times", err, v.asked)
	}
}

// TestCost ends expressions that cost too much.
func TestCost(t *testing.T) {
	s := parsed(t, `
policies:
- name: a
  failure: deny
  methods: [Place]
  when: request.items.all(a, request.items.all(b, request.items.all(c, a.price + b.price + c.price >= 0)))
  timeout: 1s
`)
	few := encoded(t, "Order", strings.Repeat("items {} ", 3))
	many := encoded(t, "Order", strings.Repeat("items {} ", 300))
	if _, err := (&visit{payload: few}).run(s); err != nil {
		t.Errorf("3 items: got %v", err)
	}
	_, err := (&visit{payload: many}).run(s)
	if code(err) != codes.Internal || !strings.Contains(err.Error(), "cost limit exceeded") {
		t.Errorf("300 items: got %v", err)
	}
}

func TestFailure(t *testing.T) {
	tests := map[string]struct {
		text string
		want codes.Code
	}{
		"access denies":       {`{name: a, when: 'metadata["no"] == "x"', access: {default: allow, rules: []}}`, codes.Internal},
		"rule of access":      {`{name: a, access: {default: allow, rules: [{deny: {when: 'metadata["no"] == "x"'}}]}}`, codes.Internal},
		"access allows":       {`{name: a, failure: allow, when: 'metadata["no"] == "x"', access: {rules: []}}`, 0},
		"others let pass":     {`{name: a, rate: {rate: 1/s, key: 'metadata["no"]'}}`, 0},
		"others deny":         {`{name: a, failure: deny, rate: {rate: 1/s, key: 'metadata["no"]'}}`, codes.Internal},
		"concurrency":         {`{name: a, failure: deny, concurrency: {limit: 1, key: 'metadata["no"]'}}`, codes.Internal},
		"breaker":             {`{name: a, failure: deny, breaker: {key: 'metadata["no"]'}}`, codes.Internal},
		"rewriting":           {`{name: a, failure: deny, rewrite: {metadata: {set: {x: 'metadata["no"]'}}}}`, codes.Internal},
		"not decodable":       {`{name: a, failure: deny, methods: [Place], when: request.total > 3, timeout: 1s}`, codes.InvalidArgument},
		"held for a log line": {`{name: a, failure: deny, methods: [Place], log: {fields: {x: request.total}}}`, codes.InvalidArgument},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := parsed(t, "policies: ["+test.text+"]")
			_, err := (&visit{payload: []byte{0xff}}).run(s)
			if code(err) != test.want {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if i := s.Policies()[0]; i.Failed != 1 {
				t.Errorf("%d failures are counted, want 1", i.Failed)
			}
		})
	}
}

// TestUnknownService judges calls of a service without descriptor.
func TestUnknownService(t *testing.T) {
	s := parsed(t, `
policies:
- {name: a, failure: deny, services: [other.*], when: request.total > 3, timeout: 1s}
- {name: b, when: 'tenant == "x" && request.total > 3', services: [nobody], timeout: 1s}
`)
	v := &visit{method: "/other.Service/Do"}
	if _, err := v.run(s); code(err) != codes.Internal || !strings.Contains(err.Error(), "no descriptor of /other.Service/Do") {
		t.Errorf("got %v", err)
	}
}

func TestInfo(t *testing.T) {
	s := parsed(t, `
policies:
- name: a
  services: [shop.*]
  tenants: [gold, "s*"]
  when: request.total > 3
  methods: Place
  timeout: 1s
`)
	want := []Info{{
		Name: "a", Kind: "timeout", Line: 3, Services: []string{"shop.*"}, Methods: []string{"Place"}, Tenants: []string{"gold", "s*"},
		When: "request.total > 3", Request: true,
	}}
	if diff := cmp.Diff(s.Policies(), want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

// TestReset uses an exchange again: nothing of the first call is left.
func TestReset(t *testing.T) {
	s := parsed(t, `
policies:
- {name: a, tenants: [gold], timeout: 1s}
- {name: b, methods: [Place], tenants: [gold], rewrite: {request: {set: {total: "1"}}, metadata: {set: {a: tenant}}, header: {set: {b: tenant}}}}
- {name: c, log: {}}
- {name: d, concurrency: {limit: 1}}
`)
	first := &visit{tenant: "gold"}
	x, c, err := first.begin(s)
	if err != nil {
		t.Fatal(err)
	}
	first.end(x, c)
	x.Reset()
	second := (&visit{tenant: "silver"}).exchange()
	x.Head, x.Now = second.Head, second.Now
	c = s.For(x.Head)
	if err := c.Begin(x); err != nil {
		t.Fatal(err)
	}
	if p := x.Plan; p.Timeout != 0 || p.Payload != nil || p.Rewrites || len(p.Acted) != 0 || len(x.responseSteps) != 0 || x.Head != second.Head {
		t.Errorf("something is left: %+v", p)
	}
	c.End(x, Outcome{Now: x.Now.Add(time.Second)})
	if len(x.Plan.Logs) != 1 || inFlight(s) != 0 {
		t.Errorf("%d lines, %d in flight", len(x.Plan.Logs), inFlight(s))
	}
}
