package gateway_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/gateway"
)

// notes are what calls brought, in order.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, fmt.Sprintf(format, args...))
}

func (n *notes) take() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	list := n.list
	n.list = nil
	return list
}

func subjectApp(subjects ...gateway.SubjectTrigger) gateway.App {
	return gateway.App{Name: "shop", Subjects: subjects}
}

// request asks on the bus and returns the answer.
func (b *memoryBus) request(subject, data string) string {
	answer := make(chan string, 1)
	b.send(gateway.Message{Subject: subject, Data: []byte(data), Respond: func(b []byte) error { answer <- string(b); return nil }})
	return <-answer
}

func TestSubjects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, seen := &memoryBus{}, &notes{}
		var stops []func()
		for _, node := range []string{"a", "b"} {
			f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
				subject, _ := c.Meta("subject")
				seen.add("%s %s %s %s", c.Function+c.Workflow, c.Trigger, subject, c.Body)
				return text("answer to " + string(c.Body)), nil
			})
			g := newGateway(t, gateway.Options{Invoker: f, Bus: bus, Node: node}, subjectApp(
				gateway.SubjectTrigger{Subject: "orders.*", Target: to("count")},
				gateway.SubjectTrigger{Subject: "orders.new", Queue: "other", Target: gateway.Target{Workflow: "ship"}},
			))
			stops = append(stops, start(t, g))
		}
		synctest.Wait()
		if heard := bus.send(gateway.Message{Subject: "orders.old", Data: []byte("1")}); heard != 1 {
			t.Errorf("%d nodes took a message", heard)
		}
		synctest.Wait()
		if diff := cmp.Diff(seen.take(), []string{"count subject orders.old 1"}); diff != "" {
			t.Error(diff)
		}
		if got := bus.request("orders.old", "2"); got != "answer to 2" {
			t.Errorf("got %q", got)
		}
		seen.take()
		if heard := bus.send(gateway.Message{Subject: "orders.new", Data: []byte("3")}); heard != 2 {
			t.Errorf("%d groups took a message", heard)
		}
		for _, stop := range stops {
			stop()
		}
		if len(seen.take()) != 2 {
			t.Error("what was taken did not finish")
		}
		if bus.open() != 0 {
			t.Error("subscriptions are left")
		}
	})
}

// Two triggers of an app for one message both get it, each on one node.
func TestSubjectsOfTwoTriggers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, seen := &memoryBus{}, &notes{}
		var stops []func()
		for _, node := range []string{"a", "b"} {
			f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
				seen.add("%s", c.Function+c.Workflow)
				return text("done"), nil
			})
			stops = append(stops, start(t, newGateway(t, gateway.Options{Invoker: f, Bus: bus, Node: node}, subjectApp(
				gateway.SubjectTrigger{Subject: "orders.new", Target: to("count")},
				gateway.SubjectTrigger{Subject: "orders.*", Target: gateway.Target{Workflow: "ship"}},
			))))
		}
		synctest.Wait()
		bus.send(gateway.Message{Subject: "orders.new"})
		synctest.Wait()
		got := seen.take()
		slices.Sort(got)
		if diff := cmp.Diff(got, []string{"count", "ship"}); diff != "" {
			t.Error(diff)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// TestSubjectFails: the requester gets a problem document.
func TestSubjectFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &memoryBus{}
		f := invoke(func(context.Context, gateway.Call) (gateway.Answer, error) {
			return gateway.Answer{}, outboard.Errorf(outboard.Busy, "call f", "full")
		})
		g := newGateway(t, gateway.Options{Invoker: f, Bus: bus}, subjectApp(gateway.SubjectTrigger{Subject: "x", Target: to("f")}))
		stop := start(t, g)
		synctest.Wait()
		want := `{"title":"Too Many Requests","status":429,"detail":"call f: full","kind":"busy"}` + "\n"
		if got := bus.request("x", ""); got != want {
			t.Errorf("got %q", got)
		}
		stop()
	})
}

// TestSubjectsChange: a new version's subjects replace the old ones.
// A message that is published when Run is ready, or after SetApps, finds its subscriber.
func TestSubjectsAtOnce(t *testing.T) {
	bus := &memoryBus{slow: true}
	f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) { return text(c.Function), nil })
	g := newGateway(t, gateway.Options{Invoker: f, Bus: bus}, subjectApp(gateway.SubjectTrigger{Subject: "x", Target: to("f")}))
	start(t, g)
	message := func(subject string) gateway.Message {
		return gateway.Message{Subject: subject, Respond: func([]byte) error { return nil }}
	}
	if bus.send(message("x")) != 1 {
		t.Error("nobody gets a message once the gateway is ready")
	}
	for i := range 20 {
		subject := fmt.Sprint("x", i)
		if err := g.SetApps([]gateway.App{subjectApp(gateway.SubjectTrigger{Subject: subject, Target: to("f")})}); err != nil {
			t.Fatal(err)
		}
		if bus.send(message(subject)) != 1 {
			t.Fatal("nobody gets a message once the app is set")
		}
	}
}

func TestSubjectsChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus := &memoryBus{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) { return text(c.Function), nil })
		g := newGateway(t, gateway.Options{Invoker: f, Bus: bus}, subjectApp(gateway.SubjectTrigger{Subject: "x", Target: to("old")}))
		stop := start(t, g)
		synctest.Wait()
		if err := g.SetApps([]gateway.App{subjectApp(gateway.SubjectTrigger{Subject: "x", Target: to("new")})}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if got := bus.request("x", ""); got != "new" || bus.open() != 1 {
			t.Errorf("%q answers, of %d subscriptions", got, bus.open())
		}
		if err := g.SetApps(nil); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if bus.open() != 0 {
			t.Errorf("%d subscriptions of an app that is gone", bus.open())
		}
		stop()
	})
}

func cronApp(schedules ...string) gateway.App {
	a := gateway.App{Name: "shop"}
	for _, s := range schedules {
		a.Crons = append(a.Crons, gateway.CronTrigger{Schedule: s, Target: to("f"), Body: []byte(s)})
	}
	return a
}

// TestCron: of two nodes one fires each time, and none is made up.
func TestCron(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now() // midnight, 1 January 2000, in UTC
		once, seen := &memoryOnce{}, &notes{}
		var stops []func()
		for _, node := range []string{"a", "b"} {
			f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
				tick, _ := c.Meta("tick")
				seen.add("%s %s at %v", tick, c.Body, time.Since(begin))
				return text("x"), nil
			})
			g := newGateway(t, gateway.Options{Invoker: f, Once: once, Node: node}, cronApp("*/20 * * * *", "30 0 * * *", "@every 25m"))
			stops = append(stops, start(t, g))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		want := []string{
			"2000-01-01T00:20:00Z */20 * * * * at 20m0s", "2000-01-01T00:20:00Z @every 25m at 20m0s", "2000-01-01T00:45:00Z @every 25m at 45m0s",
			"2000-01-01T00:30:00Z 30 0 * * * at 30m0s", "2000-01-01T00:40:00Z */20 * * * * at 40m0s",
			"2000-01-01T01:00:00Z */20 * * * * at 1h0m0s",
		}
		if diff := cmp.Diff(sorted(seen.take()), sorted(want)); diff != "" {
			t.Error(diff)
		}
		once.mu.Lock()
		once.fail = true
		once.mu.Unlock()
		time.Sleep(time.Hour)
		if got := seen.take(); len(got) > 0 {
			t.Errorf("no node knew the owner of the schedule, and one fired %q", got)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func sorted(list []string) []string {
	out := append([]string(nil), list...)
	for i := range out {
		for k := i; k > 0 && strings.Compare(out[k], out[k-1]) < 0; k-- {
			out[k], out[k-1] = out[k-1], out[k]
		}
	}
	return out
}

// Two schedules of the same time for the same function are two.
func TestCronTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		once, seen := &memoryOnce{}, &notes{}
		var stops []func()
		for _, node := range []string{"a", "b"} {
			f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
				seen.add("%s", c.Body)
				return text("x"), nil
			})
			app := gateway.App{Name: "shop", Crons: []gateway.CronTrigger{
				{Schedule: "@hourly", Target: to("count"), Body: []byte("seats")}, {Schedule: "@hourly", Target: to("count"), Body: []byte("rooms")},
			}}
			stops = append(stops, start(t, newGateway(t, gateway.Options{Invoker: f, Once: once, Node: node}, app)))
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff(sorted(seen.take()), []string{"rooms", "seats"}); diff != "" {
			t.Error(diff)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// TestCronMissed: what fell due while the clock jumped is not made up.
func TestCronMissed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jumped atomic.Int64
		seen := &notes{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			tick, _ := c.Meta("tick")
			seen.add("%s", tick)
			return text("x"), nil
		})
		now := func() time.Time { return time.Now().Add(time.Duration(jumped.Load())) }
		g := newGateway(t, gateway.Options{Invoker: f, Now: now}, cronApp("0 * * * *"))
		stop := start(t, g)
		time.Sleep(50 * time.Minute)
		jumped.Store(int64(3 * time.Hour)) // it is 3:50
		time.Sleep(80 * time.Minute)
		if diff := cmp.Diff(seen.take(), []string{"2000-01-01T04:00:00Z", "2000-01-01T05:00:00Z"}); diff != "" {
			t.Error(diff)
		}
		stop()
	})
}

// TestCronSetBack: after the clock was set back, times that come again do not wait for the times that
// were next, and come also when the schedule has yet to see the change.
func TestCronSetBack(t *testing.T) {
	for name, after := range map[string]time.Duration{
		"between two times": 50 * time.Minute,
		"before a time":     60*time.Minute - 10*time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var set atomic.Int64
				seen := &notes{}
				f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
					tick, _ := c.Meta("tick")
					seen.add("%s", tick)
					return text("x"), nil
				})
				set.Store(int64(72 * time.Hour)) // a node that starts with a wrong clock
				now := func() time.Time { return time.Now().Add(time.Duration(set.Load())) }
				g := newGateway(t, gateway.Options{Invoker: f, Now: now}, cronApp("0 * * * *"))
				stop := start(t, g)
				time.Sleep(after)
				set.Store(0)
				time.Sleep(130*time.Minute - after)
				if diff := cmp.Diff(seen.take(), []string{"2000-01-01T01:00:00Z", "2000-01-01T02:00:00Z"}); diff != "" {
					t.Error(diff)
				}
				stop()
			})
		})
	}
}

func TestCronZone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		zone := time.FixedZone("east", 2*3600)
		seen := &notes{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			seen.add("%s", c.Route)
			return gateway.Answer{}, errors.New("it is in the logs")
		})
		app := gateway.App{Name: "shop", Crons: []gateway.CronTrigger{{Schedule: "30 2 * * *", Zone: zone, Target: to("f")}}}
		g := newGateway(t, gateway.Options{Invoker: f}, app)
		stop := start(t, g)
		time.Sleep(29 * time.Minute)
		if len(seen.take()) != 0 {
			t.Error("too early")
		}
		time.Sleep(2 * time.Minute)
		if len(seen.take()) != 1 {
			t.Error("it did not fire")
		}
		stop()
		for r := range g.Logs(gateway.Filter{App: "shop"}) {
			if r.Trigger != gateway.Cron || r.Err == nil || r.Target != "f" {
				t.Errorf("got %+v", r)
			}
		}
	})
}

func TestSchedules(t *testing.T) {
	begin := time.Date(2026, 11, 20, 16, 14, 30, 0, time.UTC) // a Friday
	for text, want := range map[string]string{
		"* * * * *": "2026-11-20 16:15", "0 * * * *": "2026-11-20 17:00", "@daily": "2026-11-21 00:00", "0 9 * * mon-fri": "2026-11-23 09:00",
		"0 0 29 2 *": "2028-02-29 00:00", "*/15 8-18 * * *": "2026-11-20 16:15", "0 0 1 1 *": "2027-01-01 00:00", "@every 1h": "2026-11-20 17:00",
		"@every 90m": "2026-11-20 16:30", "0 0 13 * fri": "2026-11-27 00:00",
	} {
		s, err := gateway.ParseSchedule(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got := s.Next(begin).Format("2006-01-02 15:04"); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "* * * *", "60 * * * *", "* * 0 * *", "* * 31 2 *", "@never", "TZ=UTC * * * * *", "CRON_TZ=", "@every x", "a * * * *"} {
		if s, err := gateway.ParseSchedule(text); err == nil {
			t.Errorf("%q is a schedule: %v", text, s)
		}
	}
}

// FuzzSchedule: a schedule's times rise, and it does not hang.
func FuzzSchedule(f *testing.F) {
	for _, s := range []string{"* * * * *", "*/15 8-18 1,15 jan-mar mon", "@every 1h30m", "@weekly", "0 0 29 2 *"} {
		f.Add(s, int64(1e9))
	}
	f.Fuzz(func(t *testing.T, text string, at int64) {
		s, err := gateway.ParseSchedule(text)
		if err != nil {
			return
		}
		begin := time.Unix(at%(1<<33), 0).UTC()
		next := s.Next(begin)
		if !next.IsZero() && !next.After(begin) {
			t.Errorf("%q: after %v comes %v", text, begin, next)
		}
	})
}

// A change of the zone's offset at midnight leaves out only the times that it skips.
func TestScheduleMidnightChange(t *testing.T) {
	for name, test := range map[string]struct {
		zone, text, after string
		want              []string
	}{
		"weekday":      {"Africa/Cairo", "0 9 * * fri", "2026-04-20 00:00", []string{"2026-04-24 09:00", "2026-05-01 09:00"}},
		"day":          {"Asia/Beirut", "0 9 29 * *", "2026-03-20 00:00", []string{"2026-03-29 09:00", "2026-04-29 09:00"}},
		"skipped":      {"Asia/Beirut", "30 0 * * *", "2026-03-28 00:00", []string{"2026-03-28 00:30", "2026-03-30 00:30"}},
		"twice":        {"Africa/Cairo", "30 23 * * *", "2026-10-29 12:00", []string{"2026-10-29 23:30", "2026-10-29 23:30", "2026-10-30 23:30"}},
		"at the end":   {"Europe/Berlin", "0 3 * * *", "2026-03-28 12:00", []string{"2026-03-29 03:00", "2026-03-30 03:00"}},
		"half an hour": {"Australia/Lord_Howe", "*/30 1-2 * * *", "2026-04-05 01:10", []string{"2026-04-05 01:30", "2026-04-05 01:30", "2026-04-05 02:00"}},
		"no such day":  {"Pacific/Apia", "15 23 * * *", "2011-12-29 23:15", []string{"2011-12-31 23:15"}},
	} {
		t.Run(name, func(t *testing.T) {
			zone, err := time.LoadLocation(test.zone)
			if err != nil {
				t.Fatal(err)
			}
			const form = "2006-01-02 15:04"
			at, err := time.ParseInLocation(form, test.after, zone)
			if err != nil {
				t.Fatal(err)
			}
			s, err := gateway.ParseSchedule(test.text)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for range test.want {
				at = s.Next(at)
				got = append(got, at.Format(form))
			}
			if diff := cmp.Diff(got, test.want); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// What a clock leaps over does not come, and what it passes twice comes twice: as
// docs/functions.md says.
func TestScheduleSummerTime(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	s, err := gateway.ParseSchedule("30 2 * * *")
	if err != nil {
		t.Fatal(err)
	}
	for eve, want := range map[time.Time][]string{
		time.Date(2026, time.March, 28, 12, 0, 0, 0, berlin):   {"30 02:30 CEST", "31 02:30 CEST"},
		time.Date(2026, time.October, 24, 12, 0, 0, 0, berlin): {"25 02:30 CEST", "25 02:30 CET", "26 02:30 CET"},
	} {
		at := eve
		for _, want := range want {
			at = s.Next(at)
			if got := at.Format("02 15:04 MST"); got != want {
				t.Errorf("after %v: got %s, want %s", eve, got, want)
			}
		}
	}
}

// TestStartRepeated: the start of a workflow is repeated while it can't be recorded, as the same
// execution. Calls of functions, and requests, whose clients learn of the failure, are not.
func TestStartRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bus, seen := &memoryBus{}, &notes{}
		var mu sync.Mutex
		failures := map[string]int{}
		f := invoke(func(_ context.Context, c gateway.Call) (gateway.Answer, error) {
			if _, ok := c.Meta("content-type"); ok {
				t.Error("a message has a media type")
			}
			target := c.Function + c.Workflow
			seen.add("%s %s %q", target, c.Body, c.ID)
			mu.Lock()
			defer mu.Unlock()
			if failures[string(c.Body)]++; failures[string(c.Body)] > 3 {
				return gateway.Answer{ID: "shop/17"}, nil
			}
			return gateway.Answer{ID: "shop/17"}, outboard.Errorf(outboard.Unreachable, "start", "the state does not answer")
		})
		ship := gateway.Target{Workflow: "ship"}
		app := subjectApp(gateway.SubjectTrigger{Subject: "new", Target: ship}, gateway.SubjectTrigger{Subject: "count", Target: to("count")})
		app.Crons = []gateway.CronTrigger{{Schedule: "@hourly", Target: ship, Body: []byte("hourly")}}
		stop := start(t, newGateway(t, gateway.Options{Invoker: f, Bus: bus}, app))
		synctest.Wait()
		expect := func(want ...string) {
			t.Helper()
			if diff := cmp.Diff(seen.take(), want); diff != "" {
				t.Error(diff)
			}
		}
		bus.send(gateway.Message{Subject: "new", Data: []byte("message")})
		time.Sleep(time.Minute)
		expect(`ship message ""`, `ship message "shop/17"`, `ship message "shop/17"`, `ship message "shop/17"`)
		time.Sleep(time.Hour)
		expect(`ship hourly ""`, `ship hourly "shop/17"`, `ship hourly "shop/17"`, `ship hourly "shop/17"`)
		if got := bus.request("new", "request"); !strings.Contains(got, `"status":503`) {
			t.Errorf("got %q", got)
		}
		bus.send(gateway.Message{Subject: "count", Data: []byte("call")})
		time.Sleep(time.Minute)
		expect(`ship request ""`, `count call ""`)
		bus.send(gateway.Message{Subject: "new", Data: []byte("last")})
		synctest.Wait()
		stop()
		expect(`ship last ""`)
	})
}
