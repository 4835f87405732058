package main

import (
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// link is an emulated link.
type link struct{ nominal netem.Link }

func (l *link) String() string { return l.nominal.String() }

// lateness is by how much the emulation was late with its deliveries during some runs, in both
// directions. That depends on the program: a processor that has been idle takes longer to wake.
type lateness struct{ up, down netem.Lateness }

// total returns the mean delay of a message and its answer.
func (l *lateness) total() time.Duration { return l.up.Mean() + l.down.Mean() }

// add adds the deliveries between two readings of the emulation's counters.
func (l *lateness) add(before, after lateness) {
	l.sum(lateness{after.up.Since(before.up), after.down.Since(before.down)})
}

// sum adds the deliveries of other runs.
func (l *lateness) sum(of lateness) {
	up, down := of.up, of.down
	l.up = netem.Lateness{Count: l.up.Count + up.Count, Sum: l.up.Sum + up.Sum}
	l.down = netem.Lateness{Count: l.down.Count + down.Count, Sum: l.down.Sum + down.Sum}
}

// lateDuring calls run, and adds the lateness of the emulation's deliveries meanwhile.
func (b *runner) lateDuring(l *lateness, run func() error) error {
	before := b.late()
	err := run()
	l.add(before, b.late())
	return err
}

// emulationSpread is the relative standard deviation of the mean round trip of an emulated link, and
// of its rate.
const emulationSpread = 0.01

// emulated returns the network that the emulation of a link was during runs: its round trip, and the
// time by which its deliveries were later than those of the link without delay during calibration,
// which are in the constants.
func emulated(b *bench, nominal netem.Link, l *lateness) overhead.Link {
	return overhead.Link{
		RTT: b.rtt + nominal.RTT + max(0, l.total()-b.base.total()), Up: nominal.BitsPerSecond, Down: nominal.BitsPerSecond,
		RTTSpread: emulationSpread, BandwidthSpread: emulationSpread,
	}
}
