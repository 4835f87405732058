package calibrate

import (
	"io"
	"math"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

func way(s Sample, rtt time.Duration) *Path { return &Path{Samples: []Sample{s, s, s}, RTT: rtt} }

// waiting gives a way waits with a time in the driver and on the wire, the same after all pauses.
func waiting(w *Path, driver, wire float64) *Path {
	var all Waits
	for i := range all {
		all[i] = Wait{Pause: float64(pauses[i]), Driver: driver, Wire: wire, Command: 7 * driver, Second: 6 * driver}
	}
	w.Waits = []Waits{all, all, all}
	return w
}

func TestConstantsAreTheDifferences(t *testing.T) {
	direct := waiting(way(Sample{Query: 50, Early: 200, Stream: 210, Wall: 1e8, Init: 1e7, First: 3e7, Platforms: 4e6}, 0), 1000, 0)
	ring := waiting(way(Sample{Query: 70, Early: 500, Stream: 1200, Copy: 8e9, Write: 5e9, Read: 5e9, Wall: 1.4e8}, 0), 2000, 19_000)
	network := waiting(way(Sample{Query: 70, Early: 500, Stream: 2200, Copy: 8e9, Write: 9e8, Read: 8e8, Wall: 1.6e8, Init: 5e7}, 100*time.Microsecond), 3000, 144_500)
	fallback := overhead.DefaultConstants()
	fallback.Receive, fallback.StartUpTrips, fallback.OpenTrips = 1000, 4, 3
	got, err := Constants(direct, ring, network, 0.01, fallback)
	if err != nil {
		t.Fatal(err)
	}
	want := overhead.Constants{
		Local: 70, Encode: 500, Receive: 1000, CopyRate: 8e9, Dispatch: 1000, RingWake: 8250, Relay: 1000, RelayRate: 8e8,
		Wake: 20_000, WakeSoon: 20_000, Wait: 2000, StartUp: 19_900_000, Open: 79_700_000, StartUpTrips: 4, OpenTrips: 3, DriverLoad: 4 * time.Millisecond, Spread: 0.01,
	}
	for i, pause := range pauses {
		want.Wakes[i] = overhead.WakeUp{Pause: pause + 3000, Wake: 20_000, Second: 6*3000 - 500 - 1000, Command: 8*3000 - 1000 - 2000, LocalCommand: 8000}
	}
	if got != want {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	alone, err := Constants(direct, ring, nil, 0.01, fallback)
	if err != nil {
		t.Fatal(err)
	}
	if alone.Wake != fallback.Wake || alone.RelayRate != fallback.RelayRate || alone.RingWake != want.RingWake || alone.Wait != 1000 {
		t.Errorf("without a network: %+v", alone)
	}
	for i := range ring.Waits {
		ring.Waits[i][len(pauses)-1].Driver += 5000
	}
	if cold, err := Constants(direct, ring, nil, 0.01, fallback); err != nil || cold.RingWake != want.RingWake+2500 {
		t.Errorf("the driver takes 5 us longer after a pause: a wake-up on one machine takes %v, want %v more than %v", cold.RingWake, 2500, want.RingWake)
	}
	if _, err := Constants(&Path{}, ring, nil, 0, fallback); err == nil {
		t.Error("no samples: no error")
	}
}

// Wake-ups grow with the pause, whatever disturbed one of them. What the driver takes longer after a
// pause counts as the command's, and is no part of them.
func TestWakeUpsGrow(t *testing.T) {
	direct, network := waiting(&Path{}, 1000, 0), waiting(&Path{RTT: 100 * time.Microsecond}, 3000, 143_000)
	for i := range network.Waits {
		w := &network.Waits[i]
		w[1].Pause, w[2].Pause = 99_000, 80_000 // the third pause is shorter than the second
		w[1].Wire = 203_000                     // and was less disturbed
		w[4].Driver = 23_000                    // 20 us more
		w[8].Second = 20_000                    // 2 us more
		direct.Waits[i][7].Command = 17_000     // 10 us more
	}
	var c overhead.Constants
	setWakes(&c, direct, network)
	for i, want := range [...][4]time.Duration{{3000, 21_500, 24_000, 8000}, {83_000, 21_500, 24_000, 8000}, {83_000, 21_500, 24_000, 8000}, {203_000, 21_500, 24_000, 8000}, {423_000, 21_500, 24_000, 8000}, {803_000, 21_500, 24_000, 8000}} {
		if w := c.Wakes[i]; w.Pause != want[0] || w.Wake != want[1] || w.Command != want[2] || w.LocalCommand != want[3] {
			t.Errorf("pause %d: %+v, want %v", i, w, want)
		}
	}
	if c.Wakes[7].Second != 18_000 || c.Wakes[8].Second != 20_000 {
		t.Errorf("waits after other messages: %+v", c.Wakes)
	}
	for i := range network.Waits {
		for k := range len(pauses) - 5 {
			network.Waits[i][5+k].Wire = 243_000
			network.Waits[i][5+k].Command = 41_000 // 20 us more than without a pause
		}
		direct.Waits[i][8].Command = 17_000
	}
	setWakes(&c, direct, network)
	if c.Wakes[3].Wake != 21_500 || c.Wakes[4].Wake != 21_500 || c.Wakes[5].Wake != 71_500 || c.Wake != 71_500 || c.WakeSoon != 21_500 {
		t.Errorf("after longer pauses: %+v", c)
	}
	if c.Wakes[3].Command != 24_000 || c.Wakes[4].Command != 44_000 || c.Wakes[5].Command != 44_000 || c.Wakes[6].LocalCommand != 8000 || c.Wakes[8].LocalCommand != 18_000 {
		t.Errorf("commands after longer pauses: %+v", c)
	}
	for i := range network.Waits {
		network.Waits[i][6].Wire = 103_000 // processors were kept from their sleep
	}
	if setWakes(&c, direct, network); c.Wakes[4].Wake != 21_500 || c.Wakes[5].Wake < 21_500 || c.Wake != 71_500 {
		t.Errorf("one short wake-up: %+v", c)
	}
}

// recorded are the records of a trace.
type recorded struct {
	header  trace.Header
	records []trace.Record
}

func (r *recorded) Header() *trace.Header { return &r.header }

func (r *recorded) Next() (trace.Record, error) {
	if len(r.records) == 0 {
		return trace.Record{}, io.EOF
	}
	next := r.records[0]
	r.records = r.records[1:]
	return next, nil
}

// waitsOf returns a trace of waits: after the n-th pause, n us in transit of which a part is in the call
// that wakes the relay, and a command for which the worker
// takes 0.2 of n us more.
func waitsOf() *recorded {
	r := &recorded{header: trace.Header{Ops: []trace.Op{{Name: "clEnqueueReadBuffer"}, {Name: "clFinish"}, {Name: "clEnqueueWriteBuffer"}}}}
	at := int64(0)
	add := func(op uint16, class trace.Class, gap, encode, wire, driver int64) {
		begin := at + gap
		at = begin + encode + wire + driver
		r.records = append(r.records, trace.Record{Op: op, Class: class, Gap: gap, Begin: begin, End: at, Encode: encode, WireForward: wire / 2, WireBackward: wire - wire/2})
	}
	add(1, trace.WaitedFor, 0, 10, 1e6, 500)
	for i, pause := range pauses {
		for k := range WaitsEach {
			add(0, trace.WaitedFor, 0, 10, 1e6, 500)
			wire := int64(1000 * (i + 1))
			if k < WaitsEach/20 {
				wire = 1e9
			}
			add(1, trace.WaitedFor, int64(pause), wire/4, wire-wire/4, 500)
			add(0, trace.WaitedFor, 0, 10, 1e6, 500)
			add(2, trace.Early, int64(pause), int64(1000*(i+1)), 0, 0)
			r.records[len(r.records)-1].Execute = 200
			add(1, trace.WaitedFor, 0, 0, wire, 500)
			add(1, trace.AnsweredLocally, 0, 0, 0, 0)
		}
	}
	return r
}

// A wait's time on the wire is without that of the driver, and with that of the call which wakes the
// relay; of the few longest nothing counts.
func TestReadWaits(t *testing.T) {
	r := waitsOf()
	all := r.records
	got, err := ReadWaits(r)
	if err != nil {
		t.Fatal(err)
	}
	for i, w := range got {
		us := float64(1000 * (i + 1))
		if want := (Wait{Pause: float64(pauses[i]), Driver: 500, Wire: us, Command: 200, Second: us}); w != want {
			t.Errorf("pause %d: %+v, want %+v", i, w, want)
		}
	}
	last := &all[len(all)-2]
	recorded := *last
	last.WireForward, last.WireBackward = 0, 0
	r.records = all
	if _, err := ReadWaits(r); err == nil {
		t.Error("a trace without the worker's times of its last wait is accepted")
	}
	*last = recorded
	r.records = all[:len(all)-2]
	if _, err := ReadWaits(r); err == nil {
		t.Error("a trace that was cut off is accepted")
	}
}

// One of five samples was disturbed, and changes nothing.
func TestConstantsIgnoreADisturbance(t *testing.T) {
	calm := Sample{Query: 50, Early: 500, Stream: 1500, Copy: 8e9, Wall: 1e8}
	late := Sample{Query: 90, Early: 900, Stream: 9000, Copy: 2e9, Wall: 9e8}
	direct := way(Sample{Query: 50, Early: 200, Stream: 210, Wall: 1e8, Init: 1e7}, 0)
	want, err := Constants(direct, way(calm, 0), nil, 0.01, overhead.DefaultConstants())
	if err != nil {
		t.Fatal(err)
	}
	got, err := Constants(direct, &Path{Samples: []Sample{calm, calm, late, calm, calm}}, nil, 0.01, overhead.DefaultConstants())
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
}

// In some processes threads are placed so that calls take three times as long: a program's runs take
// the mean, and differ.
func TestConstantsAreMeans(t *testing.T) {
	near, apart := Sample{Early: 500, Stream: 1000, Wall: 1e8}, Sample{Early: 1500, Stream: 3000, Wall: 3e8}
	c, err := Constants(way(Sample{}, 0), &Path{Samples: []Sample{apart, near, near, apart, near}}, nil, 0.01, overhead.DefaultConstants())
	if want := (2*near.Early + apart.Early) / 3; err != nil || c.Encode != time.Duration(want) {
		t.Errorf("an early call takes %v (%v), want %gns", c.Encode, err, want)
	}
	if c.ForwardingSpread < 0.5 || c.StartUpSpread < 0.25 {
		t.Errorf("spreads %g and %g of samples that differ much", c.ForwardingSpread, c.StartUpSpread)
	}
}

// Samples that differ by 1 % give a spread of 1 %, and more where they are few, whatever one of them
// is; each constant has that of the samples it comes from.
func TestSpreadsAreThoseOfTheSamples(t *testing.T) {
	var direct, network Path
	for i := range 5 {
		off := 1 + 0.01*normalScore(i, 5) // five numbers with a standard deviation of 1 %
		if i == 4 {
			off += 0.1 // disturbed
		}
		direct.Samples = append(direct.Samples, Sample{Stream: 200 * off, Wall: 1e8, Init: 1e7, Speed: Speed{Arithmetic: 1e9, Memory: 1e10 * (3 - 2*off)}})
		network.Samples = append(network.Samples, Sample{Stream: 2000, Write: 1e9, Read: 1e9 * (4 - 3*off), Wall: 2e8 * off})
	}
	c, err := Constants(&direct, &network, &network, 0.001, overhead.DefaultConstants())
	if err != nil {
		t.Fatal(err)
	}
	// The constant of the start is half of the process's time.
	few := studentFactor(4)
	for name, v := range map[string][2]float64{
		"program": {c.Spread, 0.01}, "device": {c.DeviceSpread, 0.02}, "forwarding": {c.ForwardingSpread, 0.03}, "start": {c.StartUpSpread, 0.01 * 2e8 / float64(c.StartUp)},
	} {
		if math.Abs(v[0]/(v[1]*few)-1) > 1e-6 {
			t.Errorf("%s: %g, want %g", name, v[0], v[1]*few)
		}
	}
	// Tables have 2.776 and 1.984.
	if a, b := studentFactor(4)*1.96, studentFactor(100)*1.96; math.Abs(a-2.776) > 0.06 || math.Abs(b-1.984) > 0.01 {
		t.Errorf("quantiles %g and %g", a, b)
	}
	direct.Samples = direct.Samples[:2]
	if c, _ = Constants(&direct, &network, nil, 0.001, overhead.DefaultConstants()); c.Spread != 0.001 || c.DeviceSpread != 0 {
		t.Errorf("two samples have spreads of %g and %g", c.Spread, c.DeviceSpread)
	}
}

func TestSpreadIgnoresADisturbance(t *testing.T) {
	times := []time.Duration{100, 101, 99, 100, 102, 98, 100, 101, 99, 5000}
	if got := Spread(times); got <= 0 || got > 0.03 {
		t.Errorf("%.3f", got)
	}
}

// The ratio of two devices lies between those of arithmetic and memory, and its spread covers both.
func TestRatio(t *testing.T) {
	slow, fast := Speed{Arithmetic: 1e9, Memory: 1e9}, Speed{Arithmetic: 16e9, Memory: 4e9}
	multiple, spread, ok := Ratio(slow, fast)
	if !ok || math.Abs(multiple-1.0/8) > 1e-9 || math.Abs(spread-math.Log(2)) > 1e-9 {
		t.Errorf("got %g and %g, %v; want 1/8 and ln 2", multiple, spread, ok)
	}
	if back, _, _ := Ratio(fast, slow); math.Abs(back*multiple-1) > 1e-9 {
		t.Errorf("there and back is %g", back*multiple)
	}
	if multiple, spread, ok := Ratio(slow, Speed{Arithmetic: 1.05e9, Memory: 0.95e9}); multiple != 1 || spread != 0 || !ok {
		t.Errorf("two measurements of one device differ by %g, %g", multiple, spread)
	}
	w := Path{Samples: []Sample{{Speed: slow}, {Speed: Speed{Name: "d", Arithmetic: 2e9, Memory: 5e8}}}}
	if got := w.Speed(); got != (Speed{Name: "d", Arithmetic: 2e9, Memory: 1e9}) {
		t.Errorf("the best of two is %+v", got)
	}
	if _, _, ok := Ratio(slow, Speed{Name: "not measured"}); ok {
		t.Error("a device that was not measured has a ratio")
	}
}
