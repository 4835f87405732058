package cli_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/calibrate"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/recording"
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/cli"
)

// Without a network on the command line a plan has a row for each device of the pool. One whose
// network nobody has measured is not predicted, and the row says why.
func TestPlanForThePool(t *testing.T) {
	n, path := startNode(t), cli.DemoTrace(t)
	contains(t, n.succeed(t, "plan", path), "\nharbour/opencl/0 ", "\ndinghy/opencl/0 ", "its network is not measured: see `outboard network`")
	var p struct {
		Links []struct {
			Device, Unknown string
			Wall            float64 `json:"wall_s"`
		}
	}
	if err := json.Unmarshal([]byte(n.succeedQuietly(t, "plan", path, "-o", "json")), &p); err != nil || len(p.Links) != 3 {
		t.Fatalf("the plan has %+v: %v", p.Links, err)
	}
	walls := map[string]float64{}
	for _, l := range p.Links {
		walls[l.Device] = l.Wall
	}
	if walls["harbour/opencl/0"] >= walls["dinghy/opencl/0"] || walls["buoy/opencl/0"] != 0 {
		t.Errorf("the predictions are %v: want this machine's device faster than one behind a network", walls)
	}
	picture := filepath.Join(t.TempDir(), "plan.svg")
	n.succeed(t, "plan", path, "--plot", picture)
	if content, err := os.ReadFile(picture); err != nil || !strings.Contains(string(content), "dinghy/opencl/0") || strings.Contains(string(content), "buoy") {
		t.Errorf("the picture does not show the devices whose network is measured: %v", err)
	}
	n.pool.keep("none")
	if r := n.run(t, "", "plan", path); r.status != 12 || !strings.Contains(r.stderr, "name a network with --rtt and --bandwidth") {
		t.Errorf("without a device: %+v", r)
	}
}

// A program that was recorded runs where it is predicted to be fastest, and nowhere if it would be
// slower than the user allows.
func TestRunChoosesByARecording(t *testing.T) {
	n := startNode(t)
	program, err := exec.LookPath("true")
	if err != nil {
		t.Fatal(err)
	}
	n.refuse(t, 10, "make one with `outboard run --local --trace FILE", "run", "--max-slowdown", "5%", "--", program)
	fingerprint, err := trace.Fingerprint(program, []string{program})
	if err != nil {
		t.Fatal(err)
	}
	store := recording.Store{Dir: filepath.Join(n.data, "traces")}
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := errors.Join(os.WriteFile(garbage, []byte("no trace"), 0o600), store.Put(fingerprint, garbage)); err != nil {
		t.Fatal(err)
	}
	n.refuse(t, 10, "not a trace", "run", "--max-slowdown", "5%", "--", program)
	n.refuse(t, 10, "make another with `outboard run --local --trace FILE", "run", "--max-slowdown", "5%", "--", program)
	if err := store.Put(fingerprint, cli.DemoTrace(t)); err != nil {
		t.Fatal(err)
	}
	r := n.run(t, "", "run", "--", program)
	contains(t, r.stderr, "outboard: by a recording of demo, harbour/opencl/0 suits best: about ")
	if got, want := n.pool.requests[0].Prefer, []outboard.DeviceID{"harbour/opencl/0", "dinghy/opencl/0"}; r.status != 13 || !slices.Equal(got, want) {
		t.Errorf("status %d: it prefers %v, want %v", r.status, got, want)
	}
	n.run(t, "", "run", "--no-trace", "--", program)
	if got := n.pool.requests[1].Prefer; len(got) != 0 {
		t.Errorf("with --no-trace it prefers %v", got)
	}
	// Each of the 100 launches waits for a round trip of a millisecond.
	n.run(t, "", "run", "--max-slowdown", "10%", "--", program)
	if got := n.pool.requests[2].Exclude; !slices.Contains(got, "dinghy/opencl/0") || !slices.Contains(got, "buoy/opencl/0") || len(got) != 2 {
		t.Errorf("with --max-slowdown it excludes %v, want the slow one and the one of which nothing is known", got)
	}
	n.refuse(t, 12, "the best device that matches, dinghy/opencl/0, is predicted to be ", "run", "--max-slowdown", "10%", "--device", "node=dinghy", "--", program)
	n.refuse(t, 12, "the pool has no device that matches", "run", "--max-slowdown", "5%", "--device", "type=custom", "--", program)
	n.refuse(t, 12, "no way to a device that matches is measured", "run", "--max-slowdown", "5%", "--device", "node=buoy", "--", program)
}

// calibratedAs has this test's binary be the program that calibrates, or `outboard run` of it.
const calibratedAs = "OUTBOARD_TEST_CALIBRATED"

// calibratedMain prints a sample, or waits: of the machine's own driver, or of a way to a device.
func calibratedMain() int {
	s := calibrate.Sample{Query: 100, Early: 200, Stream: 1000, Copy: 4e9, Write: 2e9, Read: 3e9, Build: 5e6, Open: 1e6, Init: 5e5}
	args := strings.Join(os.Args[1:], " ")
	wire := int64(0)
	switch {
	case os.Getenv(calibratedAs) == "broken":
		fmt.Fprintln(os.Stderr, "no OpenCL\x1b[2J")
		return 4
	case strings.Contains(args, "run --no-trace --device harbour/opencl/0 "):
		s.Query, s.Early, s.Stream = 30, 150, 1700
		wire = 20_000
	case strings.Contains(args, "run --no-trace --device dinghy/opencl/0 "):
		s.Query, s.Early, s.Stream = 30, 150, 2700
		wire = 1_200_000
	case args != "calibrate" && args != "calibrate-waits":
		return 5
	}
	out := any(s)
	if os.Args[len(os.Args)-1] == "calibrate-waits" {
		w := calibrate.Waits{}
		for i := range w {
			w[i].Driver, w[i].Command = 1000, 4000
		}
		out = w
	}
	if i := slices.Index(os.Args, "--trace"); i > 0 && writeWaits(os.Args[i+1], wire) != nil {
		return 6
	}
	if err := json.NewEncoder(os.Stdout).Encode(out); err != nil {
		return 1
	}
	return 0
}

// writeWaits writes a trace of waits that are 3 us in the driver, in turn with waits for a write 10 us
// before.
func writeWaits(path string, wire int64) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w, err := trace.NewWriter(f, trace.Header{API: "opencl", Mode: trace.Remote, Program: trace.Program{Name: "calibrate"}, Devices: []trace.Device{{Name: "d"}}, Ops: []trace.Op{{Name: "clFinish", Answer: "wait"}, {Name: "clEnqueueWriteBuffer", Answer: "early"}}})
	if err != nil {
		return err
	}
	at := int64(0)
	for i := range 2*len(calibrate.Waits{})*calibrate.WaitsEach + 1 {
		gap := int64(1000)
		if i > 0 && i%2 == 0 {
			gap = 10_000
			write := trace.Record{Op: 1, Class: trace.Early, Begin: at, End: at, Execute: 7000}
			if err := w.Write(&write); err != nil {
				return err
			}
		}
		r := trace.Record{Class: trace.WaitedFor, Blocking: trace.HostBlocking, Gap: gap, Begin: at + gap, End: at + gap + wire + 3000, WireForward: wire / 2, WireBackward: wire / 2}
		if err := w.Write(&r); err != nil {
			return err
		}
		at = r.End
	}
	return errors.Join(w.Close(trace.End{Duration: at}), f.Close())
}

// calibrated returns a node and a function that calibrates for it.
func calibrated(t *testing.T, how string) (*testNode, func(args ...string) result) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	n := startNode(t)
	n.helper, n.environ = []string{self}, []string{calibratedAs + "=" + how}
	return n, func(args ...string) result {
		return n.run(t, "", append([]string{"calibrate", "--rounds", "1"}, args...)...)
	}
}

// A calibration is what three ways to a device cost, and `outboard plan` uses it from then on.
func TestCalibrate(t *testing.T) {
	n, run := calibrated(t, "works")
	n.pool.keep("harbour dinghy")
	r := run("-o", "json")
	var got struct {
		RTT       time.Duration `json:"rtt_ns"`
		Constants overhead.Constants
	}
	if err := json.Unmarshal([]byte(r.stdout), &got); err != nil || r.status != 0 {
		t.Fatalf("status %d: %s%v", r.status, r.stderr, err)
	}
	c := got.Constants
	// The worker takes 1700 - 200 ns for a message; the rest of a round trip is two wake-ups.
	if got.RTT != time.Millisecond || c.Local != 30 || c.Encode != 150 || c.Dispatch != 1500 || c.CopyRate != 4e9 || c.RelayRate != 2e9 || c.Relay != 1000 {
		t.Errorf("the constants are %+v, the round trip is %v", c, got.RTT)
	}
	if want := (20_000 - c.Encode - c.Receive - c.Dispatch) / 2; c.RingWake != want || c.Wait != 2000 {
		t.Errorf("waking up takes %v, want %v; a wait in the worker %v, want 2 us", c.RingWake, want, c.Wait)
	}
	if want := (1_200_000 - got.RTT - c.Encode - c.Receive - c.Dispatch - 2*c.Relay) / 2; c.Wake != want || c.WakeSoon != want {
		t.Errorf("waking up over a network takes %v and %v, want %v", c.Wake, c.WakeSoon, want)
	}
	if w := c.Wakes[0]; w.Second != 10_000-c.Encode-c.Relay || w.Command != 10_000-c.Dispatch-c.Wait || w.LocalCommand != 5000 {
		t.Errorf("a command takes %v there, %v here and %v in transit", w.Command, w.LocalCommand, w.Second)
	}
	if content, err := os.ReadFile(filepath.Join(n.data, cli.CalibrationFile)); err != nil || !strings.Contains(string(content), `"rtt_ns": 1000000`) {
		t.Errorf("it kept %s: %v", content, err)
	}
	n.environ = nil
	if out := n.succeed(t, "plan", cli.DemoTrace(t), "--rtt", "1ms"); strings.Contains(out, "outboard calibrate") {
		t.Errorf("outboard plan does not use it:\n%s", out)
	}
}

func TestCalibrateWithoutANetwork(t *testing.T) {
	n, run := calibrated(t, "works")
	n.pool.keep("harbour")
	r := run()
	if r.status != 0 {
		t.Fatalf("status %d: %s", r.status, r.stderr)
	}
	contains(t, r.stdout, "\nWHAT VALUE\n", "\na call that is answered locally 30 ns\n", "\ncopying in the program 3.7GiB/s\n")
	contains(t, r.stderr, "the pool has no device on another machine")
	n.pool.keep("none")
	if r := run(); r.status != 12 || !strings.Contains(r.stderr, "neither this node nor another one of the pool offers a device") {
		t.Errorf("without a device: %+v", r)
	}
	n.refuse(t, 2, "--rounds 0: want 1 to 100", "calibrate", "--rounds", "0")
}

// What the calibrating program says is in the error, without what would control a terminal.
func TestCalibrateFails(t *testing.T) {
	n, run := calibrated(t, "broken")
	if r := run(); r.status != 1 || r.stderr != "outboard: calibrate: exit status 4: no OpenCL\uFFFD[2J\n" {
		t.Errorf("%+v", r)
	}
	if _, err := os.Stat(filepath.Join(n.data, cli.CalibrationFile)); err == nil {
		t.Error("a calibration was kept")
	}
}
