// Package calibrate measures the costs of forwarding on the machines at hand: the constants of the
// model in internal/accel/overhead.
//
// The same few OpenCL calls are timed on the machine's own driver, through a session on this
// machine, and through a session to another machine; the differences are the costs of forwarding.
// The measurement uses none of the programs that are predicted.
package calibrate

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// Sample holds the measurements of one process on its way to a device.
type Sample struct {
	// Query is the time of a query that a driver library answers by itself, in ns, as the other
	// times are.
	Query float64 `json:"query_ns"`
	// Early is the thread's time for a call without an answer.
	Early float64 `json:"early_ns"`
	// Stream is the time of each of many such calls in a row, until all are done.
	Stream float64 `json:"stream_ns"`
	// Copy, Write and Read are rates in bytes/s: of the thread's part of a write, and of large
	// transfers as a whole.
	Copy  float64 `json:"copy_bytes_per_s"`
	Write float64 `json:"write_bytes_per_s"`
	Read  float64 `json:"read_bytes_per_s"`
	// Build is the time in which a small program was built, in ns, by a driver that had built it
	// before.
	Build float64 `json:"build_ns"`
	// Open is the time until the device was ready, in ns, without Build; Wall the time of the
	// process, from which the caller subtracts the measurements after Open.
	Open float64 `json:"open_ns"`
	// First is the time from the start of the process to its first call, which the caller sets in a
	// run on this machine's own driver; Load is its part in which the library was loaded.
	First float64 `json:"first_ns"`
	Load  float64 `json:"load_ns"`
	// Platforms is the time of the first call, in which the OpenCL loader loads the driver.
	Platforms float64 `json:"platforms_ns"`
	// Init is the part of Open in which the device was found: the driver starts then.
	Init float64 `json:"init_ns"`
	Wall float64 `json:"wall_ns"`
	// Speed is the speed of the device.
	Speed Speed `json:"speed"`
}

// Speed is how fast a device executes the kernels of the measurement.
type Speed struct {
	// Name is the driver's name of the device.
	Name string `json:"name"`
	// Arithmetic is the rate of a kernel that computes, in operations/s; Memory that of a kernel
	// that copies memory, in bytes/s.
	Arithmetic float64 `json:"operations_per_s"`
	Memory     float64 `json:"memory_bytes_per_s"`
}

// Ratio returns the time of a command on device to, as a multiple of its time on device from, and
// the relative standard deviation of that. A trace does not show what bounds a kernel: the ratio
// lies between those of arithmetic and of memory, and the estimate is their geometric mean. ok is
// false if one of the devices was not measured. Differences within the error of the measurement
// count as none.
func Ratio(from, to Speed) (multiple, spread float64, ok bool) {
	if !(from.Arithmetic > 0 && from.Memory > 0 && to.Arithmetic > 0 && to.Memory > 0) {
		return 0, 0, false
	}
	arithmetic, memory := math.Log(from.Arithmetic/to.Arithmetic), math.Log(from.Memory/to.Memory)
	if math.Abs(arithmetic) < speedError && math.Abs(memory) < speedError {
		return 1, 0, true
	}
	return math.Exp((arithmetic + memory) / 2), math.Min(1, math.Abs(arithmetic-memory)/2), true
}

// speedError is the relative difference between two measurements of one device.
const speedError = 0.1

// Speed is the best of the samples' speeds: what else uses the device only makes it slower.
func (w *Path) Speed() Speed {
	var best Speed
	for i := range w.Samples {
		s := &w.Samples[i].Speed
		best = Speed{s.Name, max(best.Arithmetic, s.Arithmetic), max(best.Memory, s.Memory)}
	}
	return best
}

// Path is the samples of one way to a device, taken in turn with those of the others.
type Path struct {
	Samples []Sample
	Waits   []Waits
	// RTT is the network's round trip as its transport measures it.
	RTT time.Duration
}

// typical is the mean of a quantity over the samples, without the smallest and the largest quarter.
// The processes of one program differ by where the scheduler places their threads, and a run is a sum
// over many calls: so its expectation follows from the mean. A sample that something else disturbed
// does not count.
func (w *Path) typical(of func(*Sample) float64) float64 { return middle(w.sorted(of)) }

// sorted is a quantity of all samples, in order.
func (w *Path) sorted(of func(*Sample) float64) []float64 {
	var values []float64
	for i := range w.Samples {
		values = append(values, of(&w.Samples[i]))
	}
	slices.Sort(values)
	return values
}

// wait is the typical time of waits after a pause.
func (w *Path) wait(pause int, of func(*Wait) float64) float64 {
	var values []float64
	for i := range w.Waits {
		values = append(values, of(&w.Waits[i][pause]))
	}
	slices.Sort(values)
	return middle(values)
}

// middle is the mean of sorted values without the smallest and the largest quarter, 0 for none
// (interquartile mean).
func middle(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	cut := (len(values) + 1) / 4
	sum := 0.0
	for _, v := range values[cut : len(values)-cut] {
		sum += v
	}
	return sum / float64(len(values)-2*cut)
}

// Constants derives the constants from three ways: the machine's own driver, a session on this
// machine, and a session to another one, or nil when there is none. Then what only the network's
// relays cost stays as it is in fallback.
func Constants(direct, ring, network *Path, spread float64, fallback overhead.Constants) (overhead.Constants, error) {
	if len(direct.Samples) == 0 || len(ring.Samples) == 0 {
		return fallback, errors.New("calibrate: no samples")
	}
	query := func(s *Sample) float64 { return s.Query }
	early := func(s *Sample) float64 { return s.Early }
	stream := func(s *Sample) float64 { return s.Stream }
	build := func(s *Sample) float64 { return s.Build }
	c := fallback
	c.Spread = spread
	c.Local = nonNegative(ring.typical(query))
	c.Encode = nonNegative(ring.typical(early))
	c.CopyRate = max(1e8, ring.typical(func(s *Sample) float64 { return s.Copy }))
	// The worker takes the time of the direct driver, and a little more.
	c.Dispatch = nonNegative(ring.typical(stream) - direct.typical(early))
	c.Wait = nonNegative(ring.wait(0, driverTime) - direct.wait(0, driverTime))
	c.RingWake = ringWake(&c, ring)
	setStart(&c, direct, ring)
	c.DriverLoad = nonNegative(direct.typical(func(s *Sample) float64 { return s.Platforms }))
	c.Build = nonNegative(ring.typical(build) - direct.typical(build))
	if network == nil || len(network.Samples) == 0 {
		setSpreads(&c, direct, ring, nil)
		return c, nil
	}
	c.Relay = nonNegative(network.typical(stream) - max(float64(c.Encode), float64(c.Dispatch)+direct.typical(early)))
	c.RelayRate = max(1e7, min(network.typical(func(s *Sample) float64 { return s.Write }), network.typical(func(s *Sample) float64 { return s.Read })))
	c.Wait = nonNegative(network.wait(0, driverTime) - direct.wait(0, driverTime))
	setWakes(&c, direct, network)
	setStart(&c, direct, network)
	setSpreads(&c, direct, ring, network)
	return c, nil
}

// setStart sets the constants of the start. A session replaces the start of the driver in the
// program. The first call waits for it until the session is open.
func setStart(c *overhead.Constants, direct, far *Path) {
	init := func(s *Sample) float64 { return s.Init }
	others := func(s *Sample) float64 { return s.Wall - s.Init }
	trip := float64(far.RTT)
	c.StartUp = nonNegative(far.typical(others) - direct.typical(others) - trip*float64(c.StartUpTrips-c.OpenTrips))
	c.Open = nonNegative(direct.typical(func(s *Sample) float64 { return s.First }) + far.typical(init) - trip*float64(c.OpenTrips))
}

func driverTime(w *Wait) float64 { return w.Driver }

// setWakes sets the wake-ups on the way to another machine after each pause.
func setWakes(c *overhead.Constants, direct, network *Path) {
	var wakes, seconds, commands, local []float64
	for i := range c.Wakes {
		c.Wakes[i].Pause = nonNegative(network.wait(i, func(w *Wait) float64 { return w.Pause + w.Driver }))
		wakes = append(wakes, float64(wake(c, network, i, c.Relay)))
		second := network.wait(i, func(w *Wait) float64 { return w.Second })
		seconds = append(seconds, max(0, second-float64(c.Encode+c.Relay)))
		commands = append(commands, max(0, network.wait(i, commandTime)-float64(c.Dispatch+c.Wait)))
		local = append(local, max(0, direct.wait(i, commandTime)))
	}
	// A wake-up after a longer pause is no shorter; other work of the machine contradicts this where
	// it delays a wake-up, or keeps a processor from its sleep.
	wakes, seconds, commands, local = isotonic(wakes), isotonic(seconds), isotonic(commands), isotonic(local)
	for i := range c.Wakes {
		w := &c.Wakes[i]
		w.Wake, w.Second = nonNegative(wakes[i]), nonNegative(seconds[i])
		w.Command, w.LocalCommand = nonNegative(commands[i]), nonNegative(local[i])
	}
	for i := len(c.Wakes) - 2; i >= 0; i-- {
		c.Wakes[i].Pause = min(c.Wakes[i].Pause, c.Wakes[i+1].Pause)
	}
	c.WakeSoon, c.Wake = c.Wakes[0].Wake, c.Wakes[len(c.Wakes)-1].Wake
}

// commandTime is how long a command and a wait for it take, without the time in transit of the wait.
func commandTime(w *Wait) float64 { return w.Driver + w.Command }

// wake is what a message takes each way after a pause beyond the round trip of the network and what
// it occupies relays, worker and program. It includes the system calls that wake the next process.
func wake(c *overhead.Constants, w *Path, pause int, relay time.Duration) time.Duration {
	wire := w.wait(pause, func(w *Wait) float64 { return w.Wire })
	return nonNegative((wire - float64(w.RTT+c.Encode+c.Receive+c.Dispatch+2*relay)) / 2)
}

// ringWake is wake on one machine, after the longest pause: the model distinguishes no pauses there.
// The driver takes longer after a pause, too, which counts here.
func ringWake(c *overhead.Constants, ring *Path) time.Duration {
	last := len(pauses) - 1
	cold := max(0, ring.wait(last, driverTime)-ring.wait(0, driverTime))
	return wake(c, ring, last, 0) + nonNegative(cold/2)
}

// nonNegative returns a time in ns, 0 for a negative one.
func nonNegative(v float64) time.Duration { return time.Duration(max(0, v)) }
