package function

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/function/assemble"
	"github.com/outboard-run/outboard/internal/function/image"
	"github.com/outboard-run/outboard/internal/need"
)

// TestFuelIsTheSame calls functions with the same input again and again, in other
// orders: the same fuel is counted each time.
func TestFuelIsTheSame(t *testing.T) {
	r := open(t, Options{})
	app := goGuest(t, "app")
	var functions []*Function
	for _, l := range []Limits{{}, {Fuel: 1 << 23, Deadline: time.Minute, Memory: 64 << 20}} {
		functions = append(functions, deploy(t, r, app, l))
	}
	counted := map[string]int64{}
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(rt, "items")
		items := strings.Repeat(`{"name":"key7","count":3,"tags":["a"]},`, n)
		request := fmt.Sprintf("work [%s]", strings.TrimSuffix(items, ","))
		which := rapid.IntRange(0, len(functions)-1).Draw(rt, "function")
		p, err := functions[which].Call(t.Context(), Request{Body: []byte(request)})
		if err != nil {
			rt.Fatal(err)
		}
		call := fmt.Sprint(which, request) // the seeds of maps are drawn when a function is deployed
		if want, ok := counted[call]; ok && p.Cost.Fuel != want {
			rt.Errorf("%d items: got %d, want %d", n, p.Cost.Fuel, want)
		}
		counted[call] = p.Cost.Fuel
	})
	if len(counted) < 3 {
		t.Errorf("only %d calls were drawn", len(counted))
	}
}

// countdown is a function that counts down to 0.
func countdown(from int32) []byte {
	code := slices.Concat(assemble.I32Const(from), []byte{0x21, 0, 0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x41, 0})
	return assemble.File(
		assemble.Types(assemble.Type(nil, []byte{assemble.I32})), assemble.Functions(0), assemble.Memory(1, 1),
		assemble.Exports(assemble.Export("handle", 0, 0)), assemble.Code(assemble.BodyWith([]byte{assemble.I32}, code...)),
	)
}

// TestFuelToTheLast gives a function exactly the fuel that it needs, and one less.
func TestFuelToTheLast(t *testing.T) {
	r := open(t, Options{})
	loop := countdown(1 << 24)
	call := func(l Limits) (int64, error) {
		p, err := deploy(t, r, loop, l).Call(t.Context(), Request{})
		if err != nil {
			return 0, err
		}
		return p.Cost.Fuel, nil
	}
	need, err := call(Limits{})
	if err != nil || need < 10*fuelSlice {
		t.Fatalf("used %d, %v", need, err)
	}
	for _, l := range []Limits{{Fuel: need}, {Fuel: need + 1, Deadline: time.Minute}, {Fuel: 1 << 40}} {
		if got, err := call(l); err != nil || got != need {
			t.Errorf("with %d: used %d, %v, want %d", l.Fuel, got, err, need)
		}
	}
	if _, err := call(Limits{Fuel: need - 1}); err == nil || !strings.Contains(err.Error(), "fuel limit") {
		t.Errorf("with one less: got %v", err)
	}
}

// TestQuietVisits: a call that visits its meter now and then is still watched for page
// faults, and reset without a scan. One that runs for long is not.
func TestQuietVisits(t *testing.T) {
	r := open(t, Options{})
	need.Require(t, "pagemap_scan", r.Reset() == image.Scan, "a kernel from Linux 6.7 on has it")
	const calls = 10
	for name, c := range map[string]struct {
		from  int32
		quiet bool
	}{"some": {1 << 22, true}, "many": {1 << 26, false}} {
		f := deploy(t, r, countdown(c.from), Limits{Deadline: time.Minute})
		var fuel int64
		for range calls {
			p, err := f.Call(t.Context(), Request{})
			if err != nil {
				t.Fatal(err)
			}
			fuel = p.Cost.Fuel
		}
		if visits := fuel / fuelSlice; visits < 2 || (visits > watchedVisits) == c.quiet {
			t.Fatalf("%s: %d visits", name, visits)
		}
		if got := f.Counts().Quiet; (got > calls/2) != c.quiet {
			t.Errorf("%s: %d of %d resets found the call quiet", name, got, calls)
		}
	}
}
