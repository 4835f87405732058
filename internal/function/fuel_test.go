package function

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/internal/function/assemble"
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

// TestFuelToTheLast gives a function exactly the fuel that it needs, and one less.
func TestFuelToTheLast(t *testing.T) {
	r := open(t, Options{})
	loop := assemble.File(
		assemble.Types(assemble.Type(nil, []byte{assemble.I32})), assemble.Functions(0), assemble.Memory(1, 1),
		assemble.Exports(assemble.Export("handle", 0, 0)),
		assemble.Code(assemble.BodyWith([]byte{assemble.I32},
			0x41, 0x80, 0x80, 0x80, 1, 0x21, 0, 0x03, 0x40, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x0d, 0, 0x0b, 0x41, 0)),
	)
	call := func(l Limits) (int64, error) {
		p, err := deploy(t, r, loop, l).Call(t.Context(), Request{})
		if err != nil {
			return 0, err
		}
		return p.Cost.Fuel, nil
	}
	need, err := call(Limits{})
	if err != nil || need < 10*slice {
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
