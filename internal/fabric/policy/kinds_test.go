package policy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/interop/grpc_testing" // a service with streaming methods
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/fabric/call"
)

// A timeout has acted on the calls that it has ended.
func TestTimeoutActs(t *testing.T) {
	late := status.Error(codes.DeadlineExceeded, "late")
	for name, test := range map[string]struct {
		visit visit
		acted []string
	}{
		"in time":              {visit{took: time.Second}, nil},
		"at the limit":         {visit{took: 2 * time.Second, err: late}, []string{"short"}},
		"an earlier deadline":  {visit{took: time.Second, err: late}, nil},
		"fails after the time": {visit{took: 3 * time.Second, err: errUnavailable}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			x, err := test.visit.run(parsed(t, "policies: [{name: long, timeout: 1h}, {name: short, timeout: 2s}]"))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.acted, x.Plan.Acted, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Policies for unary calls do not apply to streams. Whether a call by plain gRPC is one is not known
// without a descriptor: then they have failed.
func TestPoliciesForUnaryCalls(t *testing.T) {
	const text = "policies: [{name: h, hedge: {after: 1ms}}, {name: m, services: [unknown.Service], mirror: {to: other.Service}}]"
	set, err := Parse("test.yaml", []byte(text), protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]uint64{"/grpc.testing.TestService/FullDuplexCall": 0, "/unknown.Service/Do": 1} {
		x := (&visit{method: method}).exchange()
		x.Head.Streaming = true
		before := set.Policies()
		if err := set.For(x.Head).Begin(x); err != nil {
			t.Fatal(err)
		}
		if x.Plan.Hedge != nil || len(x.Plan.Mirror) > 0 {
			t.Errorf("%s is hedged or mirrored", method)
		}
		for i, p := range set.Policies() {
			if got := p.Failed - before[i].Failed; got != want {
				t.Errorf("%s: policy %s failed %d times, want %d", method, p.Name, got, want)
			}
		}
	}
}

func TestAccess(t *testing.T) {
	admin := metadata.Pairs("x-admin", "yes")
	big := encoded(t, "Order", `total: 5000`)
	small := encoded(t, "Order", `total: 5`)
	access := `
policies:
- name: who
  services: [shop.Orders]
  access:
    default: deny
    code: UNAUTHENTICATED
    rules:
    - deny: {tenants: [blocked, "evil-*"]}
    - allow: {tenants: [gold], methods: ["Pl*"]}
    - allow: {peers: ["10.0.*"], when: 'metadata[?"x-admin"].orValue("") == "yes"'}
    - deny: {when: request.total > 1000}
    - allow: {tenants: [silver]}
`
	type want struct {
		Code  codes.Code
		Asked int
	}
	tests := map[string]struct {
		visit visit
		want  want
	}{
		"exact":                 {visit{tenant: "blocked"}, want{codes.Unauthenticated, 0}},
		"pattern":               {visit{tenant: "evil-twin"}, want{codes.Unauthenticated, 0}},
		"two dimensions":        {visit{tenant: "gold"}, want{codes.OK, 0}},
		"one of two dimensions": {visit{tenant: "gold", method: "/shop.Orders/Change", payload: small}, want{codes.Unauthenticated, 1}},
		"condition on metadata": {visit{peer: "10.0.0.7", metadata: admin, payload: big}, want{codes.OK, 0}},
		"condition that fails":  {visit{peer: "10.0.0.7", tenant: "silver", payload: small}, want{codes.OK, 1}},
		"condition on a field":  {visit{tenant: "silver", payload: big}, want{codes.Unauthenticated, 1}},
		"default":               {visit{tenant: "nobody", payload: small}, want{codes.Unauthenticated, 1}},
		"not decodable":         {visit{tenant: "silver", payload: []byte{0xff}}, want{codes.InvalidArgument, 1}},
		"other service":         {visit{tenant: "blocked", method: find}, want{codes.OK, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := test.visit.run(parsed(t, access))
			if diff := cmp.Diff(want{code(err), test.visit.asked}, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s\n%v", diff, err)
			}
		})
	}
}

// TestManyRules crosses the border of a word of the tables.
func TestManyRules(t *testing.T) {
	var text strings.Builder
	text.WriteString("policies:\n- name: many\n  access:\n    default: deny\n    rules:\n")
	for i := range 150 {
		verb := []string{"allow", "deny"}[i%2]
		fmt.Fprintf(&text, "    - %s: {tenants: [t%d, \"p%d-*\"]}\n", verb, i, i)
	}
	text.WriteString("    - allow: {tenants: [t1, last]}\n    - deny: {}\n    - allow: {tenants: [t1, none]}\n")
	s := parsed(t, text.String())
	for i := range 150 {
		for _, tenant := range []string{fmt.Sprintf("t%d", i), fmt.Sprintf("p%d-x", i)} {
			_, err := (&visit{tenant: tenant}).run(s)
			if (err == nil) != (i%2 == 0) {
				t.Errorf("tenant %s: got %v", tenant, err)
			}
		}
	}
	if _, err := (&visit{tenant: "last"}).run(s); err != nil {
		t.Error(err)
	}
	if _, err := (&visit{tenant: "none"}).run(s); err == nil {
		t.Error("a rule behind one for everybody was looked at")
	}
}

func TestRatePerKey(t *testing.T) {
	tests := map[string]struct {
		per    string
		visits []visit
		want   []codes.Code
	}{
		"all": {"", []visit{{tenant: "a"}, {tenant: "b"}, {tenant: "c"}}, []codes.Code{0, 0, 8}},
		"tenant": {
			"per: tenant",
			[]visit{{tenant: "a"}, {tenant: "a"}, {tenant: "a"}, {tenant: "b"}},
			[]codes.Code{0, 0, 8, 0},
		},
		"refills": {
			"per: peer",
			[]visit{{}, {}, {}, {at: time.Second}, {at: time.Second}, {at: time.Hour}, {at: time.Hour}, {at: time.Hour}},
			[]codes.Code{0, 0, 8, 0, 8, 0, 0, 8},
		},
		"method":  {"per: method", []visit{{}, {}, {}, {method: find}}, []codes.Code{0, 0, 8, 0}},
		"service": {"per: service", []visit{{}, {}, {method: "/shop.Orders/Change"}, {method: find}}, []codes.Code{0, 0, 8, 0}},
		"expression": {
			`key: 'tenant + metadata[?"x"].orValue("")'`,
			[]visit{{metadata: metadata.Pairs("x", "1")}, {}, {}, {}},
			[]codes.Code{0, 0, 0, 8},
		},
		"backwards": {"", []visit{{at: time.Minute}, {}, {}, {at: time.Minute}}, []codes.Code{0, 0, 8, 8}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := parsed(t, "policies: [{name: r, rate: {rate: 1/s, burst: 2, "+test.per+"}}]")
			var got []codes.Code
			for _, v := range test.visits {
				_, err := v.run(s)
				got = append(got, code(err))
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestConcurrency(t *testing.T) {
	s := parsed(t, "policies: [{name: c, concurrency: {limit: 2, per: tenant, queue: none}}]")
	a, b, c := &visit{tenant: "a"}, &visit{tenant: "a"}, &visit{tenant: "a"}
	xa, ca, err := a.begin(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.begin(s); err != nil {
		t.Fatal(err)
	}
	if _, err := c.run(s); code(err) != codes.ResourceExhausted {
		t.Fatalf("third call: got %v", err)
	}
	if _, err := (&visit{tenant: "b"}).run(s); err != nil {
		t.Errorf("another tenant: got %v", err)
	}
	a.end(xa, ca)
	a.end(xa, ca) // gives nothing back twice
	if _, _, err := c.begin(s); err != nil {
		t.Errorf("after an end: got %v", err)
	}
	if _, err := a.run(s); code(err) != codes.ResourceExhausted {
		t.Errorf("after a second end: got %v", err)
	}
}

// TestRefusedGivesBack refuses calls behind a policy that counts them.
func TestRefusedGivesBack(t *testing.T) {
	s := parsed(t, `
policies:
- {name: c, concurrency: {limit: 1}}
- {name: k, concurrency: {limit: 1, per: tenant}}
- {name: no, when: tenant == "a", access: {rules: [], default: deny}}
`)
	for range 3 {
		if _, err := (&visit{tenant: "a"}).run(s); code(err) != codes.PermissionDenied {
			t.Fatalf("got %v", err)
		}
	}
	if n := inFlight(s); n != 0 {
		t.Errorf("%d calls are counted, and none is under way", n)
	}
}

// inFlight is the number of calls that concurrency policies count.
func inFlight(s *Set) (n int64) {
	for _, p := range s.policies {
		if c, ok := p.step.(*concurrencyStep); ok {
			n += c.state.inFlight()
		}
	}
	return n
}

func TestTimeout(t *testing.T) {
	s := parsed(t, `
policies:
- {name: long, timeout: 2s}
- {name: short, tenants: [a], timeout: 500ms}
- {name: middle, timeout: 1s}
`)
	for tenant, want := range map[string]time.Duration{"a": 500 * time.Millisecond, "b": time.Second} {
		x, err := (&visit{tenant: tenant}).run(s)
		if err != nil || x.Plan.Timeout != want {
			t.Errorf("tenant %s: got %v, %v, want %v", tenant, x.Plan.Timeout, err, want)
		}
	}
}

func TestRetry(t *testing.T) {
	s := parsed(t, `
policies:
- name: again
  retry:
    attempts: 4
    codes: [UNAVAILABLE, ABORTED]
    backoff: {base: 100ms, max: 250ms, factor: 2, jitter: 50%}
    budget: {ratio: 50%, reserve: 3}
`)
	v := &visit{chance: 1 << 63} // a half
	x, _, err := v.begin(s)
	if err != nil {
		t.Fatal(err)
	}
	var waits []time.Duration
	for attempts := 1; ; attempts++ {
		wait, ok := x.Plan.Retry.Next(x, attempts, errUnavailable)
		if !ok {
			break
		}
		waits = append(waits, wait)
	}
	ms := time.Millisecond
	if diff := cmp.Diff(waits, []time.Duration{75 * ms, 150 * ms, 187500 * time.Microsecond}); diff != "" {
		t.Errorf("waits (-got +want):\n%s", diff)
	}
	if _, ok := x.Plan.Retry.Next(x, 1, errUnavailable); ok {
		t.Error("the budget of 3 was spent, and there was one more")
	}
	for range 2 { // each call earns a half
		if x, _, err = v.begin(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, ok := x.Plan.Retry.Next(x, 1, nil); ok {
		t.Error("a call that ended well is tried again")
	}
	if _, ok := x.Plan.Retry.Next(x, 1, errUnavailable); !ok {
		t.Error("two calls earned no retry")
	}
	if _, ok := x.Plan.Retry.Next(x, 1, errUnavailable); ok {
		t.Error("two calls earned two retries")
	}
}

func TestHedge(t *testing.T) {
	s := parsed(t, "policies: [{name: h, hedge: {after: 20ms, attempts: 3, budget: {reserve: 3, ratio: 0}}}]")
	var got []bool
	for range 2 {
		x, err := (&visit{}).run(s)
		if err != nil || x.Plan.Hedge.After != 20*time.Millisecond {
			t.Fatalf("got %v, %v", x.Plan.Hedge, err)
		}
		for attempts := 1; attempts <= 3; attempts++ {
			got = append(got, x.Plan.Hedge.Next(x, attempts))
		}
	}
	if diff := cmp.Diff(got, []bool{true, true, false, true, false, false}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestBreaker(t *testing.T) {
	text := "policies: [{name: b, breaker: {ratio: 50%, least: 4, window: 10s, open: 5s, probes: 2}}]"
	ok, bad := visit{}, visit{err: errUnavailable}
	at := func(v visit, seconds int) visit {
		v.at = time.Duration(seconds) * time.Second
		return v
	}
	other := at(ok, 0)
	other.method = find
	const open = codes.Unavailable
	tests := map[string]struct {
		visits []visit
		want   []codes.Code // of Begin
	}{
		"few":            {[]visit{bad, bad, bad, ok}, []codes.Code{0, 0, 0, 0}},
		"opens":          {[]visit{ok, ok, bad, bad, ok}, []codes.Code{0, 0, 0, 0, open}},
		"other method":   {[]visit{ok, ok, bad, bad, other}, []codes.Code{0, 0, 0, 0, 0}},
		"old ones":       {[]visit{bad, bad, at(ok, 20), at(bad, 20), at(ok, 20), at(ok, 20)}, []codes.Code{0, 0, 0, 0, 0, 0}},
		"closes":         {[]visit{bad, bad, bad, bad, at(ok, 4), at(ok, 5), at(ok, 5), at(bad, 5), at(ok, 5)}, []codes.Code{0, 0, 0, 0, open, 0, 0, 0, 0}},
		"opens again":    {[]visit{bad, bad, bad, bad, at(ok, 5), at(bad, 5), at(ok, 9), at(ok, 10)}, []codes.Code{0, 0, 0, 0, 0, 0, open, 0}},
		"other failures": {[]visit{{err: errNotFound}, {err: errNotFound}, {err: errNotFound}, {err: errNotFound}, ok}, []codes.Code{0, 0, 0, 0, 0}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, handsOver := range []bool{false, true} {
				table := &Table{}
				table.Apply(parsed(t, text), start())
				var got []codes.Code
				for _, v := range test.visits {
					if handsOver {
						table = handedOver(t, table, start().Add(v.at))
					}
					_, err := v.run(table.Set())
					got = append(got, code(err))
				}
				if diff := cmp.Diff(got, test.want); diff != "" {
					t.Errorf("handed over %v: (-got +want):\n%s", handsOver, diff)
				}
			}
		})
	}
}

// Cancelled calls say nothing about a service: they hide no failures, and close no breaker.
func TestCancelledCallsDoNotCount(t *testing.T) {
	s := parsed(t, "policies: [{name: b, breaker: {least: 2, open: 5s, probes: 1, per: all}}]")
	cancelled := status.Error(codes.Canceled, "the caller is gone")
	var got []codes.Code
	for _, v := range []visit{
		{err: errUnavailable},
		{err: cancelled},
		{err: cancelled},
		{err: cancelled},
		{err: errUnavailable},
		{},
		{at: 5 * time.Second, err: cancelled},
		{at: 5 * time.Second, err: errUnavailable},
		{at: 5 * time.Second},
	} {
		_, err := v.run(s)
		got = append(got, code(err))
	}
	want := []codes.Code{0, 0, 0, 0, 0, codes.Unavailable, 0, 0, codes.Unavailable}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestProbes holds the number of calls that a half open breaker lets pass at a time.
func TestProbes(t *testing.T) {
	s := parsed(t, "policies: [{name: b, breaker: {least: 1, open: 5s, probes: 2, per: all}}]")
	if _, err := (&visit{err: errUnavailable}).run(s); err != nil {
		t.Fatal(err)
	}
	begin := func(seconds int) codes.Code {
		v := &visit{at: time.Duration(seconds) * time.Second}
		_, _, err := v.begin(s)
		return code(err)
	}
	got := []codes.Code{begin(4), begin(5), begin(5), begin(5), begin(9), begin(10)}
	want := []codes.Code{codes.Unavailable, 0, 0, codes.Unavailable, codes.Unavailable, 0}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

// TestLateEnds holds that calls of an earlier round don't count.
func TestLateEnds(t *testing.T) {
	s := parsed(t, "policies: [{name: b, breaker: {least: 1, open: 5s, per: all}}]")
	late := &visit{}
	x, c, err := late.begin(s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := (&visit{err: errUnavailable}).run(s); err != nil {
		t.Fatal(err)
	}
	probe := &visit{at: 5 * time.Second}
	if _, _, err := probe.begin(s); err != nil {
		t.Fatal(err)
	}
	late.end(x, c)
	if _, _, err := probe.begin(s); code(err) != codes.Unavailable {
		t.Errorf("an old call's good end closed the breaker: got %v", err)
	}
}

func TestMirrorFaultSample(t *testing.T) {
	s := parsed(t, `
policies:
- {name: copy, mirror: {to: shop.Next, fraction: 25%}}
- {name: slow, fault: {fraction: 50%, delay: 30ms}}
- {name: fail, fault: {fraction: 75%, code: ABORTED, message: on purpose}, methods: [Change]}
- {name: look, sample: 50%}
- {name: spans, trace: {fraction: 0.5, attributes: {who: tenant, n: attempt + 2, all: '[1, 2]'}}}
- {name: way, link: {latency: 10ms, bandwidth: 8kbit}}
`)
	type want struct {
		Mirror  []Mirror
		Delay   time.Duration
		Sample  bool
		Trace   *Trace
		Links   int
		Acted   []string
		Code    codes.Code
		Message string
	}
	fields := []Field{{"who", "a"}, {"n", int64(2)}, {"all", "[1,2]"}}
	change := "/shop.Orders/Change"
	half := uint64(1) << 63
	tests := map[string]struct {
		visit visit
		want  want
	}{
		"likely": {visit{tenant: "a"}, want{
			[]Mirror{{"shop.Next"}},
			30 * time.Millisecond, true, &Trace{true, fields}, 1,
			[]string{"copy", "slow", "look", "spans", "way"},
			0, "",
		}},
		"unlikely": {visit{chance: half}, want{nil, 0, false, &Trace{}, 1, []string{"way"}, 0, ""}},
		"fails":    {visit{chance: half, method: change}, want{Code: codes.Aborted, Message: "policy fail: on purpose", Acted: []string{"fail"}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x, err := test.visit.run(s)
			p := &x.Plan
			got := want{p.Mirror, p.Delay, p.Sample, p.Trace, len(p.Links), p.Acted, code(err), status.Convert(err).Message()}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

func TestLink(t *testing.T) {
	s := parsed(t, "policies: [{name: way, link: {latency: 10ms, jitter: 4ms, bandwidth: 8kbit}}]") // 1000 bytes a second
	x, err := (&visit{}).run(s)
	if err != nil {
		t.Fatal(err)
	}
	l, half := x.Plan.Links[0], func() uint64 { return 1 << 63 }
	ms := time.Millisecond
	got := []time.Duration{
		l.Delay(ToServer, 100, start(), half),                // 100 ms of bytes
		l.Delay(ToServer, 100, start(), half),                // behind the first
		l.Delay(ToClient, 50, start(), half),                 // the other way is free
		l.Delay(ToServer, 100, start().Add(time.Hour), half), // the queue is empty
		l.Delay(ToServer, 0, start().Add(time.Hour), nil),
	}
	if diff := cmp.Diff(got, []time.Duration{112 * ms, 212 * ms, 62 * ms, 112 * ms, 110 * ms}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestLog(t *testing.T) {
	s := parsed(t, `
policies:
- name: slow
  services: [shop.Orders]
  log: {slow: 100ms, codes: [UNAVAILABLE], fields: {user: request.user, first: "request.items[0].sku", left: deadline - now}}
`)
	order := encoded(t, "Order", `user: "ann"`)
	tests := map[string]struct {
		visit visit
		want  []Log
	}{
		"fast": {visit{payload: order, took: 99 * time.Millisecond}, nil},
		"slow": {visit{payload: order, took: 100 * time.Millisecond}, []Log{{"slow", true, []Field{
			{"user", "ann"},
			{"first", "!request.items[0].sku: index out of bounds: 0"},
			{"left", noDeadline},
		}}}},
		"failed": {visit{payload: encoded(t, "Order", `items: {sku: "x"}`), err: errUnavailable}, []Log{{"slow", false, []Field{
			{"user", ""}, {"first", "x"}, {"left", noDeadline},
		}}}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			x, err := test.visit.run(s)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(x.Plan.Logs, test.want); diff != "" {
				t.Errorf("(-got +want):\n%s", diff)
			}
		})
	}
}

// TestRefusedIsNoProbe refuses a call behind a half open breaker: the next one may
// still be the probe, and its end decides.
func TestRefusedIsNoProbe(t *testing.T) {
	s := parsed(t, `
policies:
- {name: b, breaker: {least: 1, open: 5s, per: all}}
- {name: no, tenants: [blocked], access: {default: deny, rules: []}}
`)
	later := 5 * time.Second
	var got []codes.Code
	for _, v := range []visit{{err: errUnavailable}, {tenant: "blocked", at: later}, {at: later}, {at: later}} {
		_, err := v.run(s)
		got = append(got, code(err))
	}
	if diff := cmp.Diff(got, []codes.Code{0, codes.PermissionDenied, 0, 0}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

// TestMirrorOfStreams refuses the streaming methods that are known, and mirrors no others.
func TestMirrorOfStreams(t *testing.T) {
	const text = "policies: [{name: copy, services: [grpc.testing.TestService], mirror: {to: next}}]"
	if _, err := Parse("f", []byte(text), protoregistry.GlobalFiles); err == nil || !strings.Contains(err.Error(), "is a streaming method") {
		t.Errorf("got %v, want a refusal of streaming methods", err)
	}
	s, err := Parse("f", []byte(text), nil)
	if err != nil {
		t.Fatal(err)
	}
	x := &Exchange{Head: &call.Head{Method: "/grpc.testing.TestService/FullDuplexCall", Streaming: true}, Now: start()}
	if err := s.For(x.Head).Begin(x); err != nil || len(x.Plan.Mirror) != 0 || len(x.Plan.Acted) != 0 {
		t.Errorf("a stream: %v, mirrored to %v, acted %v; want neither", err, x.Plan.Mirror, x.Plan.Acted)
	}
}
