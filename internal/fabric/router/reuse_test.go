package router

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

const marked = `- {name: mark, rewrite: {metadata: {remove: [gone], set: {x-tenant: tenant, x-seen: "'yes'"}}}}
`

// Policies that change metadata or the time that calls may take cost no memory, where
// the transport keeps nothing.
func TestMemoryOfCallsIsUsedAgain(t *testing.T) {
	if raced {
		t.Skip("pools forget on purpose")
	}
	answer := &call.Message{Data: []byte("answer")}
	for name, policies := range map[string]string{
		"rewrite": `- {name: mark, rewrite: {metadata: {set: {x-seen: "'yes'"}}}}`,
		"timeout": "- {name: limit, timeout: 10s}",
	} {
		q := newQuick(func(context.Context, *call.Head, *call.Message) (*call.Message, call.End, error) {
			return answer, call.End{}, nil
		})
		r := New(Options{})
		t.Cleanup(func() { r.Close() })
		if err := r.SetService("shop.Search", Service{Endpoints: forgetting(endpointsOf(q))}); err != nil {
			t.Fatal(err)
		}
		r.SetPolicies(policiesOf(t, policies))
		h, m := &call.Head{Method: find, Metadata: metadata.Pairs("tier", "gold")}, &call.Message{Data: []byte("request")}
		if n := testing.AllocsPerRun(1000, func() {
			if _, _, err := r.ServeUnary(context.Background(), h, m); err != nil {
				t.Error(err)
			}
		}); n >= 1 {
			t.Errorf("%s: %v allocations for each call", name, n)
		}
	}
}

// keeper is a transport that remembers heads, and what they were like.
type keeper struct {
	mu    sync.Mutex
	heads []*call.Head
	were  []metadata.MD
}

func (k *keeper) unary(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.heads, k.were = append(k.heads, h), append(k.were, h.Metadata.Copy())
	return &call.Message{Data: m.Data}, call.End{}, nil
}

func tenants(t *testing.T, r *Router, calls int) (want []metadata.MD) {
	t.Helper()
	for i := range calls {
		tenant, key := fmt.Sprint("tenant", i), fmt.Sprint("key", i)
		h := &call.Head{Method: find, Tenant: tenant, Metadata: metadata.Pairs(key, "value", "gone", "x")}
		if _, _, err := r.ServeUnary(context.Background(), h, text("x")); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(h.Metadata, metadata.Pairs(key, "value", "gone", "x")); diff != "" {
			t.Fatalf("the caller's own metadata: %s", diff)
		}
		want = append(want, metadata.Pairs(key, "value", "x-tenant", tenant, "x-seen", "yes"))
	}
	return want
}

// Nothing of one call is in the next, though they have the same memory.
func TestCallsDoNotSeeEachOther(t *testing.T) {
	k := new(keeper)
	r := New(Options{})
	defer r.Close()
	if err := r.SetService("shop.Search", Service{Endpoints: forgetting(endpointsOf(newQuick(k.unary)))}); err != nil {
		t.Fatal(err)
	}
	r.SetPolicies(policiesOf(t, marked+"- {name: limit, timeout: 10s}"))
	want := tenants(t, r, 200)
	if diff := cmp.Diff(k.were, want); diff != "" {
		t.Error(diff)
	}
}

// What somebody may hold after the call stays as it was.
func TestHeadsThatOutlastTheirCalls(t *testing.T) {
	for name, test := range map[string]struct {
		policies string
		forgets  bool
	}{
		"a transport that keeps them": {marked, false},
		"hedged":                      {marked + "- {name: twice, hedge: {attempts: 2, after: 10s}}", true},
		"mirrored":                    {marked + "- {name: copy, mirror: {to: shop.Next}}", true},
	} {
		k := new(keeper)
		endpoints := endpointsOf(newQuick(k.unary))
		endpoints[0].ReleasesContext = test.forgets
		r := New(Options{Mirrors: 1000})
		for _, service := range []string{"shop.Search", "shop.Next"} {
			if err := r.SetService(service, Service{Endpoints: endpoints}); err != nil {
				t.Fatal(err)
			}
		}
		r.SetPolicies(policiesOf(t, test.policies))
		tenants(t, r, 200)
		_ = r.Close() // waits for mirrored calls
		for i, h := range k.heads {
			if diff := cmp.Diff(h.Metadata, k.were[i]); diff != "" || h.Tenant != k.were[i]["x-tenant"][0] {
				t.Fatalf("%s: call %d of tenant %s: %s", name, i, h.Tenant, diff)
			}
		}
	}
}
