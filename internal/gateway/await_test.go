package gateway_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

// waitingApp is an app whose calls can be made once ready is closed.
func waitingApp(ready chan struct{}) gateway.App {
	return gateway.App{
		Name:     "shop",
		Routes:   []gateway.Route{{Path: "/", Target: to("f")}},
		Subjects: []gateway.SubjectTrigger{{Subject: "orders", Target: to("f")}},
		Crons:    []gateway.CronTrigger{{Schedule: "@every 10m", Target: to("f"), Body: []byte("tick")}},
		Await: func(ctx context.Context) error {
			select {
			case <-ready:
				return nil
			case <-ctx.Done():
				return outboard.Errorf(outboard.Unreachable, "", "it ends")
			}
		},
	}
}

// An app that is not ready takes no requests, and loses no message and no time: they wait, also
// while its triggers change, and are there once.
func TestAwait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, seen := &memoryBus{}, &notes{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			seen.add("%s", c.Body)
			return text("answer to " + string(c.Body)), nil
		})
		elsewhere := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
		ready := make(chan struct{})
		app := waitingApp(ready)
		g := newGateway(t, gateway.Options{Invoker: f, Bus: bus, Once: &memoryOnce{}, Elsewhere: elsewhere}, app)
		stop := start(t, g)
		synctest.Wait()
		if got := ask(g, get("/shop/")).StatusCode; got != http.StatusServiceUnavailable {
			t.Errorf("status %d", got)
		}
		answers := make(chan string, 2)
		send := func(data string) {
			bus.send(gateway.Message{Subject: "orders", Data: []byte(data), Respond: func(b []byte) error { answers <- string(b); return nil }})
		}
		send("1")
		time.Sleep(11 * time.Minute)
		if got := seen.take(); len(got) > 0 {
			t.Errorf("too early: %q", got)
		}
		app.Await, app.Subjects = nil, []gateway.SubjectTrigger{{Subject: "orders", Target: to("g")}}
		if err := g.SetApps([]gateway.App{app}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := ask(g, get("/shop/")); got.StatusCode != http.StatusOK {
			t.Errorf("status %d", got.StatusCode)
		}
		close(ready)
		send("2")
		synctest.Wait()
		if diff := cmp.Diff(sorted(seen.take()), []string{"", "1", "2", "tick"}); diff != "" {
			t.Error(diff)
		}
		if got := sorted([]string{<-answers, <-answers}); got[0] != "answer to 1" || got[1] != "answer to 2" {
			t.Errorf("got %q", got)
		}
		stop()
	})
}

// A time that waits is another node's when that is ready first.
func TestAwaitTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once, seen := &memoryOnce{}, &notes{}
		ready := make(chan struct{})
		var stops []func()
		for _, node := range []string{"a", "b"} {
			f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
				seen.add("%s", node)
				return text("x"), nil
			})
			app := waitingApp(ready)
			app.Subjects = nil
			if node == "b" {
				app.Await = nil
			}
			stops = append(stops, start(t, newGateway(t, gateway.Options{Invoker: f, Once: once, Node: node}, app)))
		}
		time.Sleep(11 * time.Minute)
		close(ready)
		synctest.Wait()
		if diff := cmp.Diff(seen.take(), []string{"b"}); diff != "" {
			t.Error(diff)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// A time does not wait longer than the nodes remember which of them has fired it.
func TestAwaitTooLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		seen := &notes{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			tick, _ := c.Meta("tick")
			seen.add("%s", tick)
			return text("x"), nil
		})
		ready := make(chan struct{})
		app := waitingApp(ready)
		app.Subjects = nil
		stop := start(t, newGateway(t, gateway.Options{Invoker: f}, app))
		time.Sleep(65 * time.Minute)
		close(ready)
		synctest.Wait()
		want := []string{"2000-01-01T00:40:00Z", "2000-01-01T00:50:00Z", "2000-01-01T01:00:00Z"}
		if diff := cmp.Diff(sorted(seen.take()), want); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// A request for an app that is never deployed gets an error, and a gateway that ends does not wait for
// requests.
func TestAwaitInVain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &memoryBus{}
		f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) { return text(""), errors.New("called") })
		gone := waitingApp(nil)
		gone.Name, gone.Subjects, gone.Crons = "bank", []gateway.SubjectTrigger{{Subject: "money", Target: to("f")}}, nil
		gone.Await = func(context.Context) error { return outboard.Errorf(outboard.NotFound, "", "it was removed") }
		stop := start(t, newGateway(t, gateway.Options{Invoker: f, Bus: bus}, waitingApp(nil), gone))
		synctest.Wait()
		if got := bus.request("money", ""); !strings.Contains(got, `"status":404`) {
			t.Errorf("got %s", got)
		}
		answer := make(chan string, 1)
		bus.send(gateway.Message{Subject: "orders", Respond: func(b []byte) error { answer <- string(b); return nil }})
		time.Sleep(11 * time.Minute) // a tick waits, too
		stop()
		if got := <-answer; !strings.Contains(got, `"status":503`) {
			t.Errorf("got %s", got)
		}
	})
}
