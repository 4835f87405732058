package overhead

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

func TestNearestPause(t *testing.T) {
	us := time.Microsecond
	for pause, want := range map[time.Duration]time.Duration{0: 0, 14 * us: 0, 16 * us: 30 * us, 100 * us: 100 * us, 351 * us: 400 * us, time.Minute: pauses[len(pauses)-1]} {
		if got := pauses[nearest(pause)]; got != want {
			t.Errorf("a pause of %v counts as %v, want %v", pause, got, want)
		}
	}
}

// A direction of the link is idle while the program and the driver work, and for a round trip after a
// message that was waited for. What the recorded messages took on their way is not part of it: another
// link takes another time.
func TestPausesAreWithoutTimeOnTheWay(t *testing.T) {
	var i idleness
	for step, c := range []struct {
		r       trace.Record
		class   trace.Class
		before  int64
		trip    bool
		answers int64 // -1: no answer
	}{
		{trace.Record{Begin: 1000, End: 1010, Encode: 10}, trace.Early, 1000, false, -1},
		{trace.Record{Class: trace.WaitedFor, Begin: 1050, End: 2000, Encode: 5, WireForward: 300, WireBackward: 200}, trace.WaitedFor, 40, false, 1500},
		{trace.Record{Class: trace.WaitedFor, Begin: 2100, End: 2900, Encode: 5, WireForward: 310, WireBackward: 210}, trace.WaitedFor, 2100 - 1055 - 500, true, 380},
		{trace.Record{Class: trace.Early, Begin: 2910, End: 2920, Encode: 5}, trace.Early, 2910 - 2105 - 520, true, -1},
		// Calls that wait in a what-if only: their messages waited for the worker, not the program for them.
		{trace.Record{Class: trace.Early, Begin: 2950, End: 2960, Encode: 5, WireForward: 5000, Execute: 7}, trace.WaitedFor, 35, false, 67},
		{trace.Record{Class: trace.Early, Begin: 3000, End: 3010, Encode: 5, WireForward: 6000, Execute: 8}, trace.WaitedFor, 45, true, 58},
	} {
		if pause, trip := i.beforeMessage(&c.r, c.class); pause != c.before || trip != c.trip {
			t.Errorf("call %d: its message comes after %d, %v; want %d, %v", step, pause, trip, c.before, c.trip)
		}
		if c.answers < 0 {
			continue
		}
		if pause := i.beforeAnswer(&c.r); pause != c.answers {
			t.Errorf("call %d: its answer comes after %d, want %d", step, pause, c.answers)
		}
	}
}

// A wait in the worker takes longer than in the driver, in which a local run was recorded; a remote run
// was recorded in the worker.
func TestAWaitInTheWorkerTakesLonger(t *testing.T) {
	for mode, want := range map[trace.Mode]time.Duration{trace.Local: 100 * 30 * time.Microsecond, trace.Remote: 0} {
		o := Options{Constants: zero()}
		p := newProgram()
		for range 100 {
			p.launch(0, 0)
			p.finish(0)
		}
		r := p.exit(0)
		r.header.Mode = mode
		without := predictOne(t, r, Link{}, o)
		o.Constants.Wait = 30 * time.Microsecond
		within(t, string(mode), predictOne(t, r, Link{}, o)-without, want, 0)
	}
}

// After a pause the device's first command takes longer than in the trace: than on the program's
// machine after the program's own pause, or than over the link that was recorded. A round trip of the
// link is a pause, too.
func TestFirstCommandAfterAPauseTakesLonger(t *testing.T) {
	us := time.Microsecond
	cold := zero()
	for i := range cold.Wakes {
		pause := time.Duration(100<<i) * us
		cold.Wakes[i] = WakeUp{Pause: pause, Command: pause / 10, LocalCommand: pause / 50}
	}
	for _, c := range []struct {
		name       string
		mode       trace.Mode
		recorded   time.Duration
		rtt, gap   time.Duration
		second     time.Duration // the pause before the second command
		perCommand time.Duration
	}{
		{"local, without a pause", trace.Local, 0, 0, 0, 0, 10*us - 2*us},
		{"local, over a link", trace.Local, 0, 800 * us, 0, 0, 80*us - 2*us},
		{"local, after the program's pause", trace.Local, 0, 0, 900 * us, 0, 90*us - 18*us},
		{"remote, over the recorded link", trace.Remote, 800 * us, 800 * us, 0, 0, 0},
		{"remote, over a shorter one", trace.Remote, 800 * us, 0, 0, 0, 0},
		{"remote, over a longer one", trace.Remote, 400 * us, 1600 * us, 0, 0, 160*us - 40*us},
		{"while the program prepares the second command", trace.Local, 0, 0, 0, 60 * us, 0},
	} {
		p := newProgram()
		for range 100 {
			p.launch(c.gap, 0) // the first command
			p.launch(c.second, 0)
			p.finish(0)
			p.now += 5000
		}
		r := p.exit(0)
		r.header.Mode, r.header.Devices[0].Link.RTT = c.mode, int64(c.recorded)
		link := Link{RTT: c.rtt}
		with, without := predictOne(t, r, link, Options{Constants: cold}), predictOne(t, r, link, Options{Constants: zero()})
		within(t, c.name, with-without, 100*c.perCommand, 100*c.perCommand/20+2*us)
	}
}

// The system call that wakes the relay is a part of the wake-up, not of the recorded program's time.
func TestMessagesThatWakeTheRelay(t *testing.T) {
	for _, c := range []struct {
		name  string
		gap   time.Duration
		bytes uint64
		want  time.Duration // of each message's 80 us
	}{
		{"after a pause", time.Millisecond, 1000, time.Microsecond},
		{"without a pause", 0, 1000, 80 * time.Microsecond},
		{"a transfer after a pause", time.Millisecond, bulkSize, 80 * time.Microsecond},
	} {
		p := newProgram()
		for range 100 {
			p.enqueue(opWrite, c.bytes, c.gap, 80*time.Microsecond, 0)
		}
		r := p.exit(0)
		r.header.Mode = trace.Remote
		for i := range r.records {
			r.records[i].Execute = 0
		}
		o := Options{Constants: zero()}
		o.Constants.Encode = time.Microsecond
		within(t, c.name, predictOne(t, r, Link{}, o), 100*(c.gap+c.want), 200*time.Microsecond)
	}
}

// A message that is waited for takes longer after another message, which has woken the relay, in both
// kinds of traces; by itself it does not.
func TestWaitsAfterOtherMessages(t *testing.T) {
	us := time.Microsecond
	o := Options{Constants: zero()}
	for i := range o.Constants.Wakes {
		pause := time.Duration(100<<i) * us
		o.Constants.Wakes[i] = WakeUp{Pause: pause, Second: pause / 10}
	}
	for _, mode := range []trace.Mode{trace.Local, trace.Remote} {
		for name, c := range map[string]struct {
			first bool
			rtt   time.Duration
			want  time.Duration
		}{
			"after a launch": {true, 0, 10 * us}, "over a link": {true, 800 * us, 80 * us}, "alone": {false, 800 * us, 0},
		} {
			p := newProgram()
			p.create(0)
			for range 100 {
				if c.first {
					p.enqueue(opLaunch, 0, 0, 0, 0)
				}
				p.read(8, 0, 0)
			}
			r := p.exit(0)
			r.header.Mode = mode
			link := Link{RTT: c.rtt}
			with, without := predictOne(t, r, link, o), predictOne(t, r, link, Options{Constants: zero()})
			within(t, string(mode)+", "+name, with-without, 100*c.want, 80*us) // before the first there is no round trip
		}
	}
}
