package overhead

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

const (
	noticeRounds = 20
	noticeDevice = time.Millisecond
)

// launchEvent adds a launch with an event, and the message that has its completion told.
func (p *program) launchEvent(event uint64, watch int) {
	r := p.enqueue(opLaunch, 0, 10*time.Microsecond, 2*time.Microsecond, noticeDevice)
	r.Event = event
	w := p.call(watch, trace.Early, 0, time.Microsecond)
	w.Forward, w.Waits = 40, []uint64{event}
}

// poll adds a poll of an event.
func (p *program) poll(event uint64, gap time.Duration, blocking trace.Blocking) {
	r := p.call(opPoll, trace.AnsweredLocally, gap, time.Microsecond)
	r.Waits, r.Blocking = []uint64{event}, blocking
}

// pollsAll makes a program that polls each command every interval until it is complete.
func pollsAll(interval time.Duration) *recording {
	p := newProgram()
	for event := range uint64(noticeRounds) {
		p.launchEvent(event+1, opPoll)
		for p.now+int64(interval) < p.device {
			p.poll(event+1, interval, trace.NonBlocking)
		}
		p.poll(event+1, interval, trace.HostBlocking)
	}
	return p.exit(0)
}

// callsBack makes a program whose callbacks wake the thread that waits for each command.
func callsBack() *recording {
	p := newProgram()
	last := int64(0)
	for event := range uint64(noticeRounds) {
		p.launchEvent(event+1, opCallback)
		at := p.device + 5000
		p.records = append(p.records, trace.Record{
			Op: opCallback, Thread: 1, Class: trace.AnsweredLocally, Blocking: trace.HostBlocking, Waits: []uint64{event + 1}, Gap: at - last, Begin: at, End: at + 1000,
		})
		last = at + 1000
		p.call(opInfo, trace.AnsweredLocally, time.Duration(last+10_000-p.now), 100)
	}
	return p.exit(0)
}

// A program that polls its commands, or has callbacks wake it, waits for a round trip each: the time in
// the loop is no work.
func TestPollsAndCallbacksWaitForTheNetwork(t *testing.T) {
	const trip = 10 * time.Millisecond
	o := Options{Constants: zero()}
	for name, r := range map[string]*recording{
		"busy polls": pollsAll(2 * time.Microsecond), "polls with sleeps": pollsAll(200 * time.Microsecond), "callbacks": callsBack(),
	} {
		t.Run(name, func(t *testing.T) {
			local := time.Duration(r.end.Duration)
			within(t, "without delay", predictOne(t, r, Link{}, o), local, local/10)
			within(t, "with delay", predictOne(t, r, Link{RTT: trip}, o), local+noticeRounds*trip, local/5)
		})
	}
}

// The time in a loop of polls that was recorded over a slow network is not that over a fast one.
func TestPollsThatWereRecordedOverASlowNetwork(t *testing.T) {
	const half = 5 * time.Millisecond
	p := newProgram()
	p.header.Mode, p.header.Devices[0].Link.RTT = trace.Remote, int64(2*half)
	for event := range uint64(noticeRounds) {
		p.device = p.now + int64(half)
		p.launchEvent(event+1, opPoll)
		p.records[len(p.records)-2].WireForward = int64(half)
		for p.now < p.device+int64(half) {
			p.poll(event+1, 10*time.Microsecond, trace.NonBlocking)
		}
		p.poll(event+1, 10*time.Microsecond, trace.HostBlocking)
	}
	got := predictOne(t, p.exit(0), Link{}, Options{Constants: zero()})
	within(t, "without delay", got, noticeRounds*noticeDevice, noticeRounds*noticeDevice/5)
}

// Polls that the program leaves before the command is complete are its own work, as are the gaps between
// them.
func TestPollsBesideWork(t *testing.T) {
	p := newProgram()
	p.launchEvent(1, opPoll)
	for range 50 {
		p.poll(1, 10*time.Microsecond, trace.NonBlocking)
	}
	p.info(0)
	r := p.exit(0)
	if got, least := predictOne(t, r, Link{}, Options{Constants: zero()}), 500*time.Microsecond; got < least {
		t.Errorf("%v, want at least the %v between the polls", got, least)
	}
}

// A poll of an event that a wait has shown to be complete waits for nothing.
func TestPollsOfKnownEvents(t *testing.T) {
	p := newProgram()
	for event := range uint64(noticeRounds) {
		p.enqueue(opLaunch, 0, 0, time.Microsecond, noticeDevice).Event = event + 1
		p.finish(0)
		p.poll(event+1, 0, trace.HostBlocking)
	}
	r := p.exit(0)
	local := time.Duration(r.end.Duration)
	within(t, "with delay", predictOne(t, r, Link{RTT: 10 * time.Millisecond}, Options{Constants: zero()}), local+noticeRounds*10*time.Millisecond, local/5)
}
