package router

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// TestHedgedEndpointIsEjected stops one of two endpoints. Though every call to it is
// overtaken by a hedge and cancelled, it is ejected, and calls need no hedges any more.
func TestHedgedEndpointIsEjected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped := newQuick(func(ctx context.Context, _ *call.Head, m *call.Message) (*call.Message, call.End, error) {
			m.Free()
			<-ctx.Done()
			return nil, call.End{}, ctx.Err()
		})
		r := New(Options{})
		t.Cleanup(func() { r.Close() })
		set := Service{Endpoints: endpointsOf(stopped, newQuick(echo)), Balance: balance.Config{Ejection: balance.Ejection{Consecutive: 5}}}
		if err := r.SetService("shop.Search", set); err != nil {
			t.Fatal(err)
		}
		r.SetPolicies(policiesOf(t, "- {name: hedge, hedge: {after: 10ms, budget: {ratio: 100%, reserve: 1000}}}"))
		for range 20 {
			if _, err := ask(t.Context(), r, "x"); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if n := stopped.calls.Load(); n != 5 {
			t.Errorf("the stopped endpoint had %d calls, want the 5 that eject it", n)
		}
		began := time.Now()
		if _, err := ask(t.Context(), r, "x"); err != nil || time.Since(began) != 0 {
			t.Errorf("a call after the ejection took %v, %v; want no hedge", time.Since(began), err)
		}
	})
}
