package arbiter

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

// player is a session of a simulated preemptive device.
type player struct {
	id     outboard.SessionID
	kernel time.Duration
	// pause is how long its client thinks after each kernel; 0: it submits without waiting.
	pause time.Duration
	// burst and rest make it submit only for burst, and then be silent for rest.
	burst, rest time.Duration
	// lies makes it report that it used nothing.
	lies bool

	holds, suspended bool
	asked            bool // for a turn that has not begun, in the background
	quantum, yield   time.Duration
	since            time.Duration // of its turn
	left             time.Duration // of the kernel that runs
	wakes            time.Duration // when its client submits the next kernel; 0: it has
	submitted        time.Duration
	latencies        []time.Duration
	used             time.Duration
}

// machine plays sessions on one preemptive device, on a virtual clock.
type machine struct {
	t       *testing.T
	arbiter *Arbiter
	now     time.Duration
	players []*player
	// background makes players that wait for a turn run while the device is unused.
	background bool
}

func (m *machine) find(id outboard.SessionID) *player {
	return m.players[slices.IndexFunc(m.players, func(p *player) bool { return p.id == id })]
}

func (m *machine) apply(actions []Action) {
	for _, a := range actions {
		switch p := m.find(a.Session); a.Verb {
		case Grant:
			p.holds, p.quantum, p.yield, p.since = true, a.Quantum, a.Yield, m.now
			p.asked = false
		case Suspend:
			p.holds, p.suspended = false, true
		case Resume:
			p.suspended = false
		default: // nothing to do in a simulation
		}
	}
}

func (m *machine) join(p *player, weight int) {
	m.players = append(m.players, p)
	m.arbiter.Join(p.id, outboard.LeaseID(p.id), weight)
	m.submit(p)
}

// submit has the client of p submit its next kernel.
func (m *machine) submit(p *player) {
	p.wakes, p.left, p.submitted = 0, p.kernel, m.now
	if !p.holds {
		p.asked = true
		m.apply(m.arbiter.Request(p.id, 0, m.now))
	} else if m.now-p.since >= p.quantum {
		m.again(p)
	}
}

func (m *machine) report(p *player) time.Duration {
	if p.lies {
		return 0
	}
	return m.now - p.since
}

// again ends the turn of p and asks for another.
func (m *machine) again(p *player) {
	used := m.report(p)
	p.holds, p.asked = false, true
	m.apply(m.arbiter.Request(p.id, used, m.now))
}

// done ends the kernel of p.
func (m *machine) done(p *player) {
	p.latencies = append(p.latencies, m.now-p.submitted)
	rests := p.rest > 0 && m.now%(p.burst+p.rest) > p.burst
	if p.pause == 0 && !rests {
		p.left, p.submitted = p.kernel, m.now
		if p.holds && m.now-p.since >= p.quantum {
			m.again(p)
		}
		return
	}
	p.wakes = m.now + p.pause
	if rests {
		p.wakes += p.rest
	}
	if rests || !p.holds || m.now-p.since >= p.yield {
		used := m.report(p)
		p.holds, p.asked = false, false
		m.apply(m.arbiter.End(p.id, used, m.now))
	}
}

// running returns the player whose kernel the device executes.
func (m *machine) running() *player {
	var behind *player
	for _, p := range m.players {
		switch {
		case p.wakes > 0:
		case p.holds:
			return p
		case m.background && (p.asked || p.suspended):
			behind = p
		}
	}
	return behind
}

// step advances to the next event.
func (m *machine) step() {
	next, ok := m.arbiter.Deadline()
	what := func() { m.apply(m.arbiter.Tick(m.now)) }
	runs := m.running()
	for _, p := range m.players {
		if p.wakes > 0 && (!ok || p.wakes < next) {
			next, ok, what = p.wakes, true, func() { m.submit(p) }
		}
	}
	if runs != nil && (!ok || m.now+runs.left <= next) {
		next, ok, what = m.now+runs.left, true, func() { m.done(runs) }
	}
	if !ok {
		m.t.Fatal("nothing happens any more")
	}
	next = max(next, m.now)
	if runs != nil {
		runs.left -= next - m.now
		runs.used += next - m.now
	}
	m.now = next
	what()
}

func (m *machine) run(until time.Duration) {
	for m.now < until {
		m.step()
	}
}

func p99(latencies []time.Duration) time.Duration {
	sorted := slices.Sorted(slices.Values(latencies))
	return sorted[len(sorted)*99/100]
}

// A victim that waits for each of its kernels, of equal weight, is not slowed down by more than
// its share accounts for, however long the kernels beside it are and whatever they report.
func TestLatencyBesideAttackers(t *testing.T) {
	attackers := map[string]player{
		"long kernels":               {kernel: 10 * ms},
		"kernels that never end":     {kernel: time.Hour},
		"short kernels":              {kernel: 10 * time.Microsecond},
		"kernels of a turn":          {kernel: 2 * ms},
		"long kernels that lie":      {kernel: 10 * ms, lies: true},
		"one kernel after the other": {kernel: 3 * ms, pause: 100 * time.Microsecond},
	}
	for name, attacker := range attackers {
		for _, kernel := range []time.Duration{ms, 3 * ms, 20 * ms} {
			for _, background := range []bool{false, true} {
				t.Run(fmt.Sprint(name, " beside ", kernel, " in the background ", background), func(t *testing.T) {
					besideAttacker(t, background, kernel, attacker)
				})
			}
		}
	}
}

func besideAttacker(t *testing.T, background bool, kernel time.Duration, a player) {
	m := &machine{t: t, arbiter: New(Options{Preemptive: true, Background: background}), background: background}
	victim := &player{id: "victim", kernel: kernel, pause: 50 * time.Microsecond}
	a.id = "attacker"
	m.join(&a, 1)
	m.join(victim, 1)
	m.run(4 * time.Second)
	if got := p99(victim.latencies); got > kernel*22/10 {
		t.Errorf("p99 %v, want at most 2.2 times of %v", got, kernel)
	}
	if share := float64(a.used) / float64(m.now); kernel == ms && a.kernel >= ms && share < 0.4 {
		t.Errorf("the attacker got %.2f of the device, which is not its share either", share)
	}
	if idle := m.now - a.used - victim.used; background && a.pause == 0 && idle > m.now/1000 {
		t.Errorf("the device was unused for %v of %v, although a session had work for it", idle, m.now)
	}
}

// A session that rests in order to come back with a burst delays others by its bounded credit.
func TestBurstsAreBounded(t *testing.T) {
	m := &machine{t: t, arbiter: New(Options{Preemptive: true})}
	victim := &player{id: "victim", kernel: ms, pause: 50 * time.Microsecond}
	m.join(&player{id: "attacker", kernel: 10 * ms, burst: 45 * ms, rest: 45 * ms}, 1)
	m.join(victim, 1)
	m.run(4 * time.Second)
	if got, want := slices.Max(victim.latencies), 8*ms; got > want {
		t.Errorf("a kernel of 1ms took %v, want at most %v", got, want)
	}
}

// What goes on after a turn was revoked on a device that can't be preempted is charged to the
// session that does it, and not to those that wait behind it in the driver.
func TestOverrunsAreCharged(t *testing.T) {
	a := New(Options{Patience: 10 * ms})
	for _, id := range []outboard.SessionID{"long", "short"} {
		a.Join(id, outboard.LeaseID(id), 1)
		a.Request(id, 0, 0)
	}
	if diff := a.Tick(10 * ms); len(diff) != 1 || diff[0].Session != "short" {
		t.Fatalf("got %v, want a turn of the one with short kernels", diff)
	}
	a.Request("long", 100*ms, 100*ms) // its kernel ends
	a.Request("short", 91*ms, 101*ms) // and then one that has waited for it
	long, short := a.sessions["long"].used, a.sessions["short"].used
	if long != 100*ms || short != ms {
		t.Errorf("charged %v for a kernel of 100ms and %v for one of 1ms", long, short)
	}
}

// A session whose turn ends while another one still overruns its own is not charged for the time in
// which the device did that one's work.
func TestTurnBesideAnOverrunIsNotCharged(t *testing.T) {
	a := New(Options{Patience: 10 * ms})
	for _, id := range []outboard.SessionID{"long", "short"} {
		a.Join(id, outboard.LeaseID(id), 1)
		a.Request(id, 0, 0)
	}
	a.Tick(10 * ms)                   // "long" overruns from here on
	a.Request("short", 89*ms, 100*ms) // its kernel of 1ms has waited for the other one's
	if short := a.sessions["short"].used; short > ms {
		t.Errorf("a session was charged %v while another one overran its turn", short)
	}
	a.Request("long", 200*ms, 200*ms)
	if long := a.sessions["long"].used; long < 190*ms {
		t.Errorf("a kernel of 200ms was charged %v", long)
	}
}
