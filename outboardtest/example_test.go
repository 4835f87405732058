package outboardtest_test

import (
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/outboardtest"
)

// TestMain lets the test binary serve as the pool's workers as well.
func TestMain(m *testing.M) { outboardtest.Main(m) }

// A pool of two nodes in one process, whose second has no devices, and a program
// that borrows one.
func Example() {
	_ = func(t *testing.T) { // your test
		pool := outboardtest.Start(t, outboardtest.Options{
			Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy", NoDevices: true}},
		})
		dinghy := pool.Node("dinghy")
		devices, err := dinghy.Client().Devices(t.Context(), outboard.Selector{})
		if err != nil {
			t.Fatal(err)
		}
		t.Log("dinghy sees", len(devices), "devices")
		args := append([]string{"run", "--"}, outboardtest.Program("hello")...)
		if out, err := dinghy.Command(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
}

// TestExample runs the code of the example.
func TestExample(t *testing.T) {
	pool := outboardtest.Start(t, outboardtest.Options{
		Nodes: []outboardtest.Spec{{Name: "harbour"}, {Name: "dinghy", NoDevices: true}},
	})
	dinghy := pool.Node("dinghy")
	devices, err := dinghy.Client().Devices(t.Context(), outboard.Selector{})
	if err != nil {
		t.Fatal(err)
	}
	if len(devices) != 2 {
		t.Errorf("got %d devices, want the two of harbour", len(devices))
	}
	args := append([]string{"run", "--"}, outboardtest.Program("hello")...)
	out, err := dinghy.Command(t.Context(), args...).CombinedOutput()
	if err != nil || string(out) != "hello\n" {
		t.Errorf("got %q, %v", out, err)
	}
}
