package overhead

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/outboard-run/outboard/internal/cost"
)

// Link is a network path between a program and its device.
type Link struct {
	// RTT is the propagation delay there and back.
	RTT time.Duration
	// Up and Down are the bandwidths towards the device and back, in bits per second; 0 is
	// unlimited.
	Up, Down float64
	// Burst is the size of the token bucket that bounds each direction, in bytes: that many pass at
	// once after a pause. 0 means that the wire bounds the bandwidth.
	Burst int64
	// RTTSpread and BandwidthSpread are relative standard deviations of a measured path.
	RTTSpread, BandwidthSpread float64
	// DeviceTime is how long the device takes for a command, as a multiple of the recorded device's
	// time; 0 means 1. DeviceSpread is its relative standard deviation.
	DeviceTime, DeviceSpread float64
	// SharedMemory says that program and device are on one machine: no relay is between them.
	SharedMemory bool
}

// The bounds of a link.
const (
	maxRTT       = time.Minute
	minBandwidth = 10e3
	maxBurst     = 1 << 20
	// maxDeviceTime bounds DeviceTime, and its inverse.
	maxDeviceTime = 100
)

func (l Link) validate() error {
	switch {
	case l.SharedMemory && (l.RTT != 0 || l.Up != 0 || l.Down != 0):
		return errors.New("a network between program and device on one machine")
	case l.DeviceTime != 0 && !(l.DeviceTime >= 1/float64(maxDeviceTime) && l.DeviceTime <= maxDeviceTime) || !(l.DeviceSpread >= 0 && l.DeviceSpread <= 1):
		return fmt.Errorf("a device that takes %g times as long: want %g to %d", l.DeviceTime, 1/float64(maxDeviceTime), maxDeviceTime)
	case l.Burst < 0 || l.Burst > maxBurst || l.Burst > 0 && (l.Up == 0 || l.Down == 0):
		return fmt.Errorf("a token bucket of %d bytes: want 0 to %d, and a bandwidth", l.Burst, maxBurst)
	case l.RTT < 0 || l.RTT > maxRTT:
		return fmt.Errorf("a round-trip time of %v: want 0 to %v", l.RTT, maxRTT)
	case !(l.Up >= 0) || !(l.Down >= 0) || l.Up > 0 && l.Up < minBandwidth || l.Down > 0 && l.Down < minBandwidth:
		return fmt.Errorf("a bandwidth of %g and %g bit/s: want %g or more, or 0 for unlimited", l.Up, l.Down, minBandwidth)
	}
	return nil
}

// Constants are the costs of forwarding between two machines, measured without the network and with
// programs other than those predicted.
type Constants struct {
	// Local is the time of a call that the driver library answers by itself.
	Local time.Duration `json:"local_ns"`
	// Encode is the time of an early call in the driver library, Receive that of a reply.
	Encode  time.Duration `json:"encode_ns"`
	Receive time.Duration `json:"receive_ns"`
	// CopyRate is how fast the driver library copies a transfer's bytes, in bytes/s.
	CopyRate float64 `json:"copy_bytes_per_s"`
	// Relay is how long each message occupies either direction of the relays that encrypt and
	// forward it, RelayRate the rate of its bytes there, in bytes/s.
	Relay     time.Duration `json:"relay_ns"`
	RelayRate float64       `json:"relay_bytes_per_s"`
	// Wake is how long a message takes from ring to ring beyond the propagation delay and
	// Relay, each way: the processes on its way wake up.
	Wake time.Duration `json:"wake_ns"`
	// WakeSoon is Wake if the processes on the way handled a message shortly before, and have not
	// gone to sleep.
	WakeSoon time.Duration `json:"wake_soon_ns"`
	// Wakes are wake-ups after growing pauses between the pauses of WakeSoon and Wake; zero if they
	// were not measured.
	Wakes [wakePoints]WakeUp `json:"wakes"`
	// Dispatch is the worker's time for a message besides the driver's call.
	Dispatch time.Duration `json:"dispatch_ns"`
	// Wait is how much longer a call that waits for the device takes in the worker than in the
	// driver.
	Wait time.Duration `json:"wait_ns"`
	// Build is how much longer a build takes in the worker, which compiles kernels in a separate
	// process.
	Build time.Duration `json:"build_ns"`
	// RingWake is Wake on one machine, where the message goes from ring to ring.
	RingWake time.Duration `json:"ring_wake_ns"`
	// StartUp is the time that `outboard run` adds before the program starts and after it has ended,
	// without the network. Open is the time from the program's start until its session is open: the
	// session opens beside the program, whose first call waits for it. Of StartUpTrips round trips,
	// OpenTrips are those of the session's opening.
	StartUp      time.Duration `json:"start_up_ns"`
	Open         time.Duration `json:"open_ns"`
	StartUpTrips int           `json:"start_up_trips"`
	OpenTrips    int           `json:"open_trips"`
	// DriverLoad is how long the OpenCL loader takes to load the machine's own driver, before the
	// first call of a local recording. A leased run does not load it.
	DriverLoad time.Duration `json:"driver_load_ns"`
	// Spread is the relative standard deviation of the same work from run to run. DeviceSpread is
	// that of a device's commands, ForwardingSpread that of a message's costs, StartUpSpread that
	// of StartUp and Open together; if they were not measured, Spread is used.
	Spread           float64 `json:"spread"`
	DeviceSpread     float64 `json:"device_spread"`
	ForwardingSpread float64 `json:"forwarding_spread"`
	StartUpSpread    float64 `json:"start_up_spread"`
}

// wakePoints is the number of pauses that calibration tries.
const wakePoints = 9

// WakeUp is the time of a message, each way, after a pause, as Constants.Wake.
type WakeUp struct {
	// Pause is the time since the previous message, without the time that messages were in transit.
	Pause time.Duration `json:"pause_ns"`
	Wake  time.Duration `json:"wake_ns"`
	// Second is how much longer than by itself a message that is waited for takes if another message
	// was sent just before: that one wakes the relay, and this one often leaves after it. The worker
	// executes the other message meanwhile.
	Second time.Duration `json:"second_ns"`
	// Command is how long the device's driver takes for a small command and a wait for it after the
	// pause: processor caches are cold, and the driver's threads sleep. LocalCommand is the same on the
	// program's machine.
	Command      time.Duration `json:"command_ns"`
	LocalCommand time.Duration `json:"local_command_ns"`
}

// DefaultConstants returns constants for machines that were not calibrated: a 3 GHz server of 2025.
func DefaultConstants() Constants {
	return Constants{
		Local: 60 * time.Nanosecond, Encode: 500 * time.Nanosecond, Receive: time.Microsecond, CopyRate: 8e9,
		Relay: 1200 * time.Nanosecond, RelayRate: 9e8, Wake: 25 * time.Microsecond, WakeSoon: 12 * time.Microsecond, Dispatch: 1500 * time.Nanosecond, RingWake: 8 * time.Microsecond,
		Build:   30 * time.Millisecond,
		StartUp: 20 * time.Millisecond, Open: 50 * time.Millisecond, StartUpTrips: 4, OpenTrips: 3, Spread: 0.02,
	}
}

func (c Constants) validate() error {
	for name, d := range map[string]time.Duration{
		"local": c.Local, "encode": c.Encode, "receive": c.Receive, "relay": c.Relay, "wake": c.Wake, "wake_soon": c.WakeSoon, "dispatch": c.Dispatch, "start_up": c.StartUp, "open": c.Open, "driver_load": c.DriverLoad, "ring_wake": c.RingWake, "wait": c.Wait, "build": c.Build,
	} {
		if d < 0 || d > time.Minute {
			return fmt.Errorf("constants: %s is %v: want 0 to 1m; run `outboard calibrate` again", name, d)
		}
	}
	if !c.growingWakes() {
		return fmt.Errorf("constants: wakes are %v: want times up to 1m that grow; run `outboard calibrate` again", c.Wakes)
	}
	if !(c.CopyRate >= 1e6) || !(c.RelayRate >= 1e6) || c.StartUpTrips < 0 || c.StartUpTrips > 100 || c.OpenTrips < 0 || c.OpenTrips > c.StartUpTrips {
		return fmt.Errorf("constants: copy %g B/s, relay %g B/s, %d and %d trips: run `outboard calibrate` again", c.CopyRate, c.RelayRate, c.StartUpTrips, c.OpenTrips)
	}
	for _, spread := range []float64{c.Spread, c.DeviceSpread, c.ForwardingSpread, c.StartUpSpread} {
		if !(spread >= 0 && spread < 1) {
			return fmt.Errorf("constants: a spread of %g: want 0 to 1; run `outboard calibrate` again", spread)
		}
	}
	return nil
}

// growingWakes reports whether all times of Wakes grow with the pause. Those of a release that
// measured fewer pauses are not used.
func (c *Constants) growingWakes() bool {
	last := WakeUp{}
	for _, w := range c.Wakes {
		grow := w.Pause >= last.Pause && w.Wake >= last.Wake && w.Second >= last.Second && w.Command >= last.Command && w.LocalCommand >= last.LocalCommand
		if !grow && c.Wakes[wakePoints-1].Pause != 0 || max(w.Pause, w.Wake, w.Second, w.Command, w.LocalCommand) > time.Minute {
			return false
		}
		last = w
	}
	return true
}

// WhatIf switches optimisations off.
type WhatIf struct {
	// NoLocality forwards calls that the driver library answers by itself, and waits for them.
	NoLocality bool
	// NoShadow makes calls that create objects wait for the worker's answer.
	NoShadow bool
	// NoAsync makes every forwarded call wait for the worker's answer.
	NoAsync bool
}

// factors are the lanes of one setting: the setting itself, and one more for each source of
// uncertainty, in which it is one standard deviation larger.
type factors int

const (
	exact factors = iota
	slowerProgram
	slowerDevice
	slowerForwarding
	laterWakeUps
	longerStart
	longerLink
	narrowerLink

	factorCount
)

// lanes expands links to the lanes of the evaluator.
type lanes struct {
	up, down cost.Profile
	// upBucket and downBucket are the token buckets of both directions; bursts says that some link
	// has a bucket.
	upBucket, downBucket cost.Profile
	bursts               bool
	// program, device and driver are factors on the time of the program, of the device's commands
	// and of the driver's return after them.
	program, device, driver []float64
	forwarding              []float64
	latency                 []cost.Time    // RTT/2
	asleep                  *wakePenalties // the additional time of wake-ups after pauses
	second                  *wakePenalties // that of waits after other messages
	paths                   []path         // for the penalties that depend on the trace
	start                   []cost.Time    // the additional start-up time in the lane of its spread
	count                   int
}

// Between these pauses a process's next wake-up grows to that of a sleeping process, if calibration
// has not measured it: the two ends of a ring spin for some 200 us while answers come that fast.
const (
	soonPause = 100 * time.Microsecond
	longPause = 300 * time.Microsecond
)

// wakeAfter returns the time of a wake-up after a pause without messages.
func (c *Constants) wakeAfter(pause time.Duration) time.Duration {
	if c.Wakes[wakePoints-1].Pause > 0 {
		return c.after(pause, func(w *WakeUp) time.Duration { return w.Wake })
	}
	return between(pause, soonPause, longPause, c.WakeSoon, max(c.Wake, c.WakeSoon))
}

// after interpolates one of the times of Wakes.
func (c *Constants) after(pause time.Duration, of func(*WakeUp) time.Duration) time.Duration {
	soon, long := &c.Wakes[0], &c.Wakes[0]
	for i := range c.Wakes {
		if long = &c.Wakes[i]; pause <= long.Pause {
			break
		}
		soon = long
	}
	return between(pause, soon.Pause, long.Pause, of(soon), of(long))
}

// between interpolates between the times after two pauses.
func between(pause, soon, long, afterSoon, afterLong time.Duration) time.Duration {
	if long <= soon {
		return afterLong
	}
	share := float64(min(max(pause, soon), long)-soon) / float64(long-soon)
	return afterSoon + time.Duration(share*float64(afterLong-afterSoon))
}

// longestWake returns the longest time of a wake-up, after a pause of any length.
func (c *Constants) longestWake() time.Duration {
	if last := c.Wakes[wakePoints-1]; last.Pause > 0 {
		return last.Wake
	}
	return max(c.Wake, c.WakeSoon)
}

func makeLanes(links []Link, c *Constants, spread Spread, intervals bool) lanes {
	per := 1
	if intervals {
		per = int(factorCount)
	}
	l := lanes{count: len(links) * per, asleep: &wakePenalties{}, second: &wakePenalties{}}
	for _, link := range links {
		for f := range factors(per) {
			l.add(link, c, spread, f)
		}
	}
	return l
}

func (l *lanes) add(link Link, c *Constants, spread Spread, f factors) {
	factor := func(of factors, by float64) float64 {
		if f == of {
			return 1 + by
		}
		return 1
	}
	forwarding := factor(slowerForwarding, spread.Forwarding)
	half := cost.Time(float64(cost.Of(link.RTT)) / 2 * factor(longerLink, link.RTTSpread))
	wake, relay, relayPerByte := c.wakeAfter(0), forwarding, forwarding/c.RelayRate
	if link.SharedMemory {
		wake, relay, relayPerByte = c.RingWake, 0, 0
	}
	l.paths = append(l.paths, path{link, forwarding})
	l.second.add(path{link, forwarding}, func(pause, _ time.Duration) time.Duration {
		return c.after(pause, func(w *WakeUp) time.Duration { return w.Second })
	})
	l.asleep.add(path{link, forwarding}, func(pause, _ time.Duration) time.Duration { return c.wakeAfter(pause) - c.wakeAfter(0) })
	if f == laterWakeUps && !link.SharedMemory {
		wake += c.wakeSpread(link.RTT)
	}
	l.start = append(l.start, cost.Time(float64(cost.Of(c.StartUp+c.Open))*(factor(longerStart, spread.StartUp)-1)))
	latency := half + cost.Time(float64(cost.Of(wake))*forwarding)
	narrow := factor(narrowerLink, link.BandwidthSpread)
	l.latency = append(l.latency, half)
	l.up.Latency, l.down.Latency = append(l.up.Latency, latency), append(l.down.Latency, latency)
	l.up.Slowdown, l.down.Slowdown = append(l.up.Slowdown, relay), append(l.down.Slowdown, relay)
	up, down := cost.Rate(link.Up)*narrow, cost.Rate(link.Down)*narrow
	l.bursts = l.bursts || link.Burst > 0
	if addBucket(&l.upBucket, link.Burst, up); link.Burst > 0 {
		up = 0
	}
	if addBucket(&l.downBucket, link.Burst, down); link.Burst > 0 {
		down = 0
	}
	l.up.PerUnit = append(l.up.PerUnit, min(1e-3, max(up, relayPerByte)))
	l.down.PerUnit = append(l.down.PerUnit, min(1e-3, max(down, relayPerByte)))
	l.program = append(l.program, factor(slowerProgram, spread.Program))
	l.driver = append(l.driver, factor(slowerDevice, spread.Device))
	l.device = append(l.device, cmp.Or(link.DeviceTime, 1)*factor(slowerDevice, math.Hypot(spread.Device, link.DeviceSpread)))
	l.forwarding = append(l.forwarding, forwarding)
}

// wakeSpread returns the standard deviation of a wake-up after a pause that is not known to be
// long: the wake-up is assumed to be uniformly distributed between the shortest and the longest one
// measured.
func (c *Constants) wakeSpread(pause time.Duration) time.Duration {
	longest := c.longestWake()
	if c.wakeAfter(pause) >= longest {
		return 0
	}
	return time.Duration(float64(longest-c.wakeAfter(0)) / math.Sqrt(12))
}

// Spread holds relative standard deviations of sums of times.
type Spread struct {
	Program, Device, Forwarding, StartUp float64
}
