package router

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// three are an access list, a token bucket and a limit, as the issue has them.
const three = `
- {name: who, access: {default: deny, rules: [{allow: {tenants: [gold]}}]}}
- {name: rate, rate: {rate: 10000000/s, burst: 1000000}}
- {name: most, concurrency: {limit: 1000}}`

// BenchmarkUnary is the router's own cost of a unary call, over a transport that
// answers at once.
func BenchmarkUnary(b *testing.B) {
	answer := &call.Message{Data: make([]byte, 64)}
	q := newQuick(func(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
		return answer, call.End{}, nil
	})
	for name, test := range map[string]struct {
		options  Options
		policies string
		balance  balance.Config
	}{
		"bare":             {},
		"three policies":   {policies: three},
		"least requests":   {balance: balance.Config{Method: balance.LeastRequests, Ejection: balance.Ejection{Consecutive: 5}}},
		"timeout":          {policies: "- {name: limit, timeout: 1s}"},
		"rewrite":          {policies: `- {name: mark, rewrite: {metadata: {set: {x-seen: "'yes'"}}}}`},
		"retry":            {policies: "- {name: again, retry: {attempts: 3}}"},
		"traced, no spans": {options: Options{Tracer: noop.NewTracerProvider()}},
	} {
		b.Run(name, func(b *testing.B) {
			r := New(test.options)
			defer r.Close()
			if err := r.SetService("shop.Search", Service{Endpoints: forgetting(endpointsOf(q, q, q)), Balance: test.balance}); err != nil {
				b.Fatal(err)
			}
			if test.policies != "" {
				r.SetPolicies(policiesOf(b, test.policies))
			}
			h := &call.Head{Method: find, Tenant: "gold", Peer: "uid:1000", Metadata: metadata.Pairs("tier", "silver")}
			m := &call.Message{Data: make([]byte, 64)}
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := r.ServeUnary(context.Background(), h, m); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// forgetting says so of transports.
func forgetting(endpoints []Endpoint) []Endpoint {
	for i := range endpoints {
		endpoints[i].ReleasesContext = true
	}
	return endpoints
}

func BenchmarkStreamMessage(b *testing.B) {
	f := newFake(echoes)
	r := routed(b, "", f)
	for name, front := range map[string]*fake{"direct": f, "routed": callerOf(r)} {
		b.Run(name, func(b *testing.B) {
			s, err := front.Open(context.Background(), &call.Head{Method: find, Streaming: true})
			if err != nil {
				b.Fatal(err)
			}
			m := text("x")
			b.ReportAllocs()
			for b.Loop() {
				if err := s.Send(m); err != nil {
					b.Fatal(err)
				}
				if _, err := s.Recv(); err != nil {
					b.Fatal(err)
				}
			}
			_ = s.CloseSend()
		})
	}
}

// BenchmarkClientStream is the router's cost of a stream with messages one way, to an endpoint of
// this process and to one behind another, for which the messages are kept until the callee answers.
func BenchmarkClientStream(b *testing.B) {
	for _, shape := range []struct{ messages, size int }{{1, 100}, {10, 100}, {20_000, 100}, {10, 100_000}, {100, 100_000}} {
		for name, forwards := range map[string]bool{"local": false, "forwarded": true} {
			b.Run(fmt.Sprintf("%d of %d B/%s", shape.messages, shape.size, name), func(b *testing.B) {
				list := endpointsOf(newFake(after(-1, nil)))
				list[0].Forwards = forwards
				r := routed(b, "")
				if err := r.SetService("shop.Search", Service{Endpoints: list}); err != nil {
					b.Fatal(err)
				}
				m := &call.Message{Data: make([]byte, shape.size)}
				b.ReportAllocs()
				for b.Loop() {
					s := open(context.Background(), b, r)
					for range shape.messages {
						if err := s.Send(m); err != nil {
							b.Fatal(err)
						}
					}
					_ = s.CloseSend()
					if _, err := rest(s); !errors.Is(err, io.EOF) {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkCalls(b *testing.B) {
	r := New(Options{})
	for i := range 100 {
		r.stats.methods.of(fmt.Sprintf("/s.S/m%d", i)).record(0, time.Millisecond, time.Now())
	}
	for b.Loop() {
		r.Calls()
	}
}
