package policy

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// judge is what a call costs: Begin and End, with an exchange that is used again.
func judge(b *testing.B, s *Set, payload []byte) {
	b.Helper()
	v := &visit{chance: 1 << 63}
	given := v.exchange()
	head := &call.Head{Method: place, Tenant: "gold", Peer: "10.0.0.7", Metadata: metadata.Pairs("x-user", "ann")}
	c := s.For(head)
	bytes := func() ([]byte, error) { return payload, nil }
	x := &Exchange{}
	b.ReportAllocs()
	for b.Loop() {
		x.Reset()
		x.Head, x.Now, x.Rand, x.Payload = head, given.Now, given.Rand, bytes
		if err := c.Begin(x); err != nil {
			b.Fatal(err)
		}
		c.End(x, Outcome{Now: given.Now})
	}
}

// BenchmarkKinds measures one policy of each kind. The first line is a chain without
// any.
func BenchmarkKinds(b *testing.B) {
	kinds := []struct{ name, text string }{
		{"none", ""},
		{"access", `access: {default: deny, rules: [{deny: {tenants: [a, b, c]}}, {allow: {tenants: [gold, silver], methods: [Place]}}]}`},
		{"access/when", `access: {default: deny, rules: [{allow: {when: tenant == "gold"}}]}`},
		{"when", `{when: tenant == "gold" && method.startsWith("Pl"), timeout: 1s}`},
		{"when/metadata", `{when: 'metadata["x-user"] == "ann"', timeout: 1s}`},
		{"rate", `rate: {rate: 10000000/s, burst: 1000000000}`},
		{"rate/tenant", `rate: {rate: 10000000/s, burst: 1000000000, per: tenant}`},
		{"rate/key", `rate: {rate: 10000000/s, burst: 1000000000, key: 'tenant'}`},
		{"concurrency", `concurrency: {limit: 10}`},
		{"concurrency/tenant", `concurrency: {limit: 10, per: tenant}`},
		{"timeout", `timeout: 1s`},
		{"retry", `retry: {}`},
		{"hedge", `hedge: {after: 1s}`},
		{"breaker", `breaker: {}`},
		{"mirror", `mirror: {to: next, fraction: 50%}`},
		{"fault", `fault: {delay: 1s}`},
		{"link", `link: {latency: 1ms}`},
		{"rewrite/metadata", `rewrite: {metadata: {set: {x-tenant: tenant}}}`},
		{"log", `log: {slow: 1s, fields: {who: tenant}}`},
		{"sample", `sample: 1%`},
		{"trace", `trace: {fraction: 1%}`},
	}
	for _, kind := range kinds {
		b.Run(kind.name, func(b *testing.B) {
			text := "policies:\n"
			switch {
			case strings.HasPrefix(kind.text, "{"):
				text += "- {name: p, " + kind.text[1:]
			case kind.text != "":
				text += "- {name: p, " + kind.text + "}"
			}
			judge(b, parsed(b, text), nil)
		})
	}
}

// BenchmarkChain measures chains of the three policies that most calls have, and
// longer ones.
func BenchmarkChain(b *testing.B) {
	three := `
- {name: access%[1]d, access: {default: deny, rules: [{allow: {tenants: [gold]}}]}}
- {name: rate%[1]d, rate: {rate: 10000000/s, burst: 1000000000}}
- {name: count%[1]d, concurrency: {limit: 100}}
`
	for _, n := range []int{1, 2, 4, 8} {
		b.Run(fmt.Sprint(3*n), func(b *testing.B) {
			text := "policies:\n"
			for i := range n {
				text += fmt.Sprintf(three, i)
			}
			judge(b, parsed(b, text), nil)
		})
	}
}

// BenchmarkPayload proves that a policy that needs only the head costs the same
// whatever the payload's size, and shows what one on a field costs.
func BenchmarkPayload(b *testing.B) {
	policies := map[string]string{
		"head":  `policies: [{name: p, when: 'metadata["x-user"] == "ann"', timeout: 1s}]`,
		"field": `policies: [{name: p, methods: [Place], when: request.total >= 0, timeout: 1s}]`,
	}
	for _, size := range []int{64, 256 << 10} {
		order := message(b, "Order", `user: "ann" total: 7`)
		blob := order.Descriptor().Fields().ByName("blob")
		order.Set(blob, newBytes(size-proto.Size(order)-4))
		payload, err := proto.Marshal(order)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range []string{"head", "field"} {
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) { judge(b, parsed(b, policies[name]), payload) })
		}
	}
}

func BenchmarkFor(b *testing.B) {
	s := parsed(b, `policies: [{name: a, tenants: [gold], timeout: 1s}]`)
	h := &call.Head{Method: place, Tenant: "gold"}
	b.ReportAllocs()
	for b.Loop() {
		s.For(h)
	}
}

func BenchmarkWasm(b *testing.B) {
	for _, name := range []string{"allow", "guest"} {
		b.Run(name, func(b *testing.B) {
			judge(b, withModules(b, fmt.Sprintf("policies: [{name: w, wasm: {module: %s.wasm}}]", name)), nil)
		})
	}
}

func BenchmarkParse(b *testing.B) {
	files := shopFiles(b)
	text := []byte(`policies: [{name: p, services: [shop.Orders], when: request.total >= 0, timeout: 1s}]`)
	for b.Loop() {
		if _, err := Parse("p.yaml", text, files); err != nil {
			b.Fatal(err)
		}
	}
}
