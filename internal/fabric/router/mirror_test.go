package router

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/outboard-run/outboard/fabric/call"
)

func TestMirror(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stuck := make(chan struct{})
		shadow := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
			<-stuck
			if string(m.Data) != "x" || h.Method != "/shop.Next/Find" {
				t.Errorf("the mirror got %q for %s", m.Data, h.Method)
			}
			return echo(ctx, h, m)
		})
		r := routedWith(t, Options{Mirrors: 3}, "- {name: copy, mirror: {to: shop.Next}}", newQuick(echo))
		if err := r.SetService("shop.Next", Service{Endpoints: endpointsOf(shadow)}); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			// What the caller does with its memory after the call is its own affair.
			m := text("x")
			if _, _, err := r.ServeUnary(t.Context(), &call.Head{Method: find}, m); err != nil {
				t.Fatal(err)
			}
			m.Data[0] = 'y'
		}
		synctest.Wait()
		if calls, dropped := shadow.calls.Load(), r.stats.dropped.Load(); calls != 3 || dropped != 2 {
			t.Errorf("%d mirrored, %d dropped, want 3 and 2", calls, dropped)
		}
		close(stuck)
		synctest.Wait()
		if left := r.mirrored.Load(); left != 0 {
			t.Errorf("%d bytes are still counted", left)
		}
	})
}

// TestMirrorOfOneProgram mirrors a service to another one that the same endpoint serves:
// each call runs the production method once and the mirror's method once.
func TestMirrorOfOneProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var production, copies, others atomic.Int64
		program := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
			switch h.Method {
			case find:
				production.Add(1)
			case "/shop.Next/Find":
				copies.Add(1)
			default:
				others.Add(1)
			}
			return echo(ctx, h, m)
		})
		r := routedWith(t, Options{}, "- {name: copy, mirror: {to: shop.Next}}", program)
		if err := r.SetService("shop.Next", Service{Endpoints: endpointsOf(program)}); err != nil {
			t.Fatal(err)
		}
		for range 10 {
			for _, method := range []string{find, "/shop.Next/Find"} {
				if _, _, err := r.ServeUnary(t.Context(), &call.Head{Method: method}, text("x")); err != nil {
					t.Fatal(err)
				}
			}
		}
		synctest.Wait()
		if p, c, o := production.Load(), copies.Load(), others.Load(); p != 10 || c != 20 || o != 0 {
			t.Errorf("the production method ran %d times, the copy's %d, others %d: want 10, 20 (10 of them direct) and 0", p, c, o)
		}
	})
}
