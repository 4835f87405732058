package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// demoTrace writes the trace of a program of 100 launches with a finish after each, in a second.
func demoTrace(t *testing.T) string {
	t.Helper()
	return traceOf(t, 100, 9_000_000)
}

// traceOf writes the trace of a program of launches that take the device so many ns, each a
// millisecond after a finish.
func traceOf(t *testing.T, launches int, device int64) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "demo.trace")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.NewWriter(f, trace.Header{
		API: "opencl", Mode: trace.Local, Program: trace.Program{Name: "demo"}, Client: trace.Machine{Cores: 2}, Devices: []trace.Device{{Name: "d"}},
		Ops: []trace.Op{{Name: "clEnqueueNDRangeKernel", Answer: "early"}, {Name: "clFinish", Answer: "wait"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const gap = 1_000_000
	now := int64(0)
	for range launches {
		launch := trace.Record{Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: 1, Forward: 120, Gap: gap, Begin: now + gap, End: now + gap}
		launch.Start, launch.DeviceTime = launch.End, device
		finish := trace.Record{Op: 1, Class: trace.WaitedFor, Blocking: trace.HostBlocking, Queue: 1, Forward: 40, Backward: 32, Begin: launch.End, Blocked: device}
		finish.End = finish.Begin + device
		now = finish.End
		for _, r := range []*trace.Record{&launch, &finish} {
			if err := w.Write(r); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := w.Close(trace.End{Duration: now}); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// runCommand runs a command with a data folder of its own.
func runCommand(t *testing.T, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs bytes.Buffer
	env := &Env{Stdout: &out, Stderr: &errs, Environ: []string{"OUTBOARD_DATA=" + t.TempDir()}}
	status = env.Run(context.Background(), args)
	return out.String(), errs.String(), status
}

// A device behind a link that is slower than predictions allow does not prevent those of others.
func TestPlanWithAVerySlowLink(t *testing.T) {
	file := traceFile{path: demoTrace(t)}
	links := []overhead.Link{networkOf(&client.Link{RTT: time.Millisecond, Forward: 100, Backward: 1}), networkOf(&client.Link{RTT: time.Millisecond, Forward: 1e8, Backward: 1e8})}
	found, err := overhead.Predict(file.open, links, overhead.Options{Constants: overhead.DefaultConstants()})
	if err != nil || found[0].Wall <= found[1].Wall {
		t.Errorf("%+v, %v", found, err)
	}
}

// A network whose bandwidth is not measured is marked where its prediction is: at no limit.
func TestMarkWithoutABandwidth(t *testing.T) {
	measured := markOf("harbour/opencl/0", &overhead.Link{RTT: time.Millisecond, Up: 1e9, Down: 2e9})
	if measured.Y != 1e9 || measured.Note != "1 ms, 1 Gbit/s" {
		t.Errorf("measured: %+v", measured)
	}
	if m := markOf("harbour/opencl/0", &overhead.Link{RTT: time.Millisecond}); m.Y < 1e15 || m.Note != "1 ms, bandwidth not measured" {
		t.Errorf("not measured: %+v", m)
	}
}

// A run that compiled kernels does not displace a shorter recording of the same work; other work does.
func TestTheShorterRecordingIsKept(t *testing.T) {
	env := &Env{}
	env.config.data = t.TempDir()
	long, short, other := traceOf(t, 100, 20_000_000), traceOf(t, 100, 9_000_000), traceOf(t, 200, 9_000_000)
	for _, step := range []struct{ file, want string }{{long, long}, {short, short}, {long, short}, {other, other}, {short, short}} {
		if err := env.keepTrace("program", step.file); err != nil {
			t.Fatal(err)
		}
		kept, err := env.traceStore().Path("program")
		if err != nil {
			t.Fatal(err)
		}
		got, gotErr := os.ReadFile(kept)
		want, wantErr := os.ReadFile(step.want)
		if gotErr != nil || wantErr != nil || !bytes.Equal(got, want) {
			t.Errorf("after %s, not %s is kept: %v, %v", step.file, step.want, gotErr, wantErr)
		}
	}
	stale := time.Now().Add(-shortestTraceAge)
	kept, err := env.traceStore().Path("program")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(kept, stale, stale); err != nil {
		t.Fatal(err)
	}
	if err := env.keepTrace("program", long); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(kept); err != nil || time.Since(info.ModTime()) >= shortestTraceAge {
		t.Errorf("a recording of a week ago is not replaced: %v", err)
	}
}

func TestPlanPredictsANetwork(t *testing.T) {
	path := demoTrace(t)
	stdout, stderr, status := runCommand(t, "plan", path, "--rtt", "1ms", "--bandwidth", "1Gbit")
	if status != 0 || !strings.Contains(stdout, "demo takes 1 s on a device of its own machine.\nElsewhere it waits for ") || !strings.Contains(stdout, "1 Gbit/s") {
		t.Fatalf("status %d\n%s%s", status, stdout, stderr)
	}
	if !strings.Contains(stderr, "run `outboard calibrate` once") {
		t.Errorf("it does not say that the machine is not calibrated: %s", stderr)
	}
	stdout, stderr, status = runCommand(t, "plan", path, "--rtt", "10ms", "--what-if", "async=off", "-o", "json")
	var p plan
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || status != 0 {
		t.Fatalf("%v, status %d: %s", err, status, stderr)
	}
	// A finish is a round trip, and without async so is a launch; the device executes it meanwhile.
	if got := p.Links[0]; got.Wall < 1.99 || got.Wall > 2.3 || got.WhatIf["async off"]-got.Wall < 0.09 || got.WhatIf["async off"]-got.Wall > 0.2 || got.Low >= got.Wall {
		t.Errorf("%+v", got)
	}
}

func TestPlanFindsTheSlowestNetwork(t *testing.T) {
	stdout, stderr, status := runCommand(t, "plan", demoTrace(t), "--max-slowdown", "30%", "--rtt", "10us..100ms")
	if status != 0 || !strings.Contains(stdout, "at least ") || !strings.Contains(stdout, "not possible") || !strings.Contains(stdout, "95 % INTERVAL") {
		t.Errorf("status %d\n%s%s", status, stdout, stderr)
	}
	stdout, stderr, status = runCommand(t, "plan", demoTrace(t), "--max-slowdown", "30%", "--rtt", "10us", "-o", "json")
	var p plan
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || len(p.Required) != 1 {
		t.Fatalf("status %d: %v\n%s%s", status, err, stdout, stderr)
	}
	if r := p.Required[0]; !r.Possible || !(r.Low > 0 && r.Low <= r.Bandwidth) || r.High > 0 && r.High < r.Bandwidth {
		t.Errorf("%+v: want an interval around the bandwidth", r)
	}
}

func TestPlanDraws(t *testing.T) {
	path := demoTrace(t)
	for _, name := range []string{"plan.svg", "plan.html"} {
		file := filepath.Join(t.TempDir(), name)
		if _, stderr, status := runCommand(t, "plan", path, "--plot", file, "--rtt", "10us..10ms", "--bandwidth", "1Mbit..1Gbit"); status != 0 {
			t.Fatal(stderr)
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"Slowdown of demo", "The slowest network", "One phase, local beside remote", "1 Gbit/s"} {
			if !strings.Contains(string(text), want) {
				t.Errorf("%s lacks %q", name, want)
			}
		}
	}
}

func TestPlanTogether(t *testing.T) {
	path := demoTrace(t)
	stdout, stderr, status := runCommand(t, "plan", path, path, "--together", "--rtt", "100us", "-o", "json")
	var p plan
	if err := json.Unmarshal([]byte(stdout), &p); err != nil || status != 0 || len(p.Links) != 2 {
		t.Fatalf("%v, status %d: %s%s", err, status, stdout, stderr)
	}
	// Each has 0.9 s of device time, and they share the device.
	if got := p.Links[1].Wall; got < 1.75 || got > 2.2 {
		t.Errorf("two programs on one device take %.2f s", got)
	}
	if p.Program != "" || p.Local != 0 || p.Links[1].Local < 0.9 || p.Links[1].Local > 1.1 {
		t.Errorf("the programs' own times: %+v", p)
	}
}

func TestPlanRefuses(t *testing.T) {
	path := demoTrace(t)
	garbage := filepath.Join(t.TempDir(), "garbage")
	if err := os.WriteFile(garbage, []byte("no trace"), 0o600); err != nil {
		t.Fatal(err)
	}
	picture := filepath.Join(t.TempDir(), "trace.svg")
	if err := os.Symlink(path, picture); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"no trace":                   {nil, 2, "outboard run --trace FILE"},
		"two without together":       {[]string{path, path}, 2, "--together"},
		"together without a network": {[]string{path, path, "--together"}, 2, "--rtt 1ms"},
		"a word for a time":          {[]string{path, "--rtt", "soon"}, 2, "200us"},
		"a range backwards":          {[]string{path, "--rtt", "5ms..1ms"}, 2, "the smaller one first"},
		"a number for a rate":        {[]string{path, "--bandwidth", "100"}, 2, "100Mbit"},
		"an unknown mechanism":       {[]string{path, "--what-if", "magic=off"}, 2, "locality=off"},
		"a fraction":                 {[]string{path, "--max-slowdown", "0.05"}, 2, "5%"},
		"a picture of no kind":       {[]string{path, "--plot", "x.png"}, 2, ".svg or .html"},
		"a picture of one network":   {[]string{path, "--plot", "x.svg", "--rtt", "1ms"}, 2, "--plot draws ranges"},
		"a picture and a what-if":    {[]string{path, "--plot", "x.svg", "--what-if", "async=off"}, 2, "leave out --max-slowdown and --plot"},
		"a picture over the trace":   {[]string{picture, "--plot", picture}, 2, "is the trace itself"},
		"a bound and a what-if":      {[]string{path, "--max-slowdown", "5%", "--what-if", "async=off"}, 2, "leave out --max-slowdown and --plot"},
		"a great slowdown":           {[]string{path, "--max-slowdown", "1e9%"}, 2, "up to 10000%"},
		"a small rate":               {[]string{path, "--bandwidth", "1kbit"}, 2, "from 10kbit"},
		"no rate and unlimited":      {[]string{path, "--bandwidth", "1Mbit..unlimited"}, 2, "unlimited stands alone"},
		"garbage":                    {[]string{garbage, "--rtt", "1ms"}, 10, "not a trace"},
		"a pipe":                     {[]string{os.DevNull, "--rtt", "1ms"}, 10, "is no file"},
		"a missing file":             {[]string{garbage + "x", "--rtt", "1ms"}, 11, "no such file"},
	} {
		_, stderr, status := runCommand(t, append([]string{"plan"}, c.args...)...)
		if status != c.status || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %s", name, status, stderr)
		}
	}
}

func TestConstantsAreKept(t *testing.T) {
	dir := t.TempDir()
	want := overhead.DefaultConstants()
	want.Wake = 7 * time.Microsecond
	if err := writeConstants(dir, &calibration{Constants: want}); err != nil {
		t.Fatal(err)
	}
	if got, err := readConstants(dir); err != nil || got != want {
		t.Errorf("%+v, %v", got, err)
	}
	if err := os.WriteFile(filepath.Join(dir, calibrationFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := readConstants(dir); err == nil || !strings.Contains(err.Error(), "outboard calibrate") {
		t.Errorf("a damaged file: %v", err)
	}
}

func TestNetworkOfAMeasuredLink(t *testing.T) {
	got := networkOf(&client.Link{RTT: time.Millisecond, RTTSpread: 134900, Forward: 1e8, ForwardSpread: 1.349e7})
	if got.RTT != time.Millisecond || got.Up != 8e8 || got.Down != 8e8 || got.RTTSpread < 0.09 || got.RTTSpread > 0.11 || got.BandwidthSpread < 0.09 {
		t.Errorf("%+v", got)
	}
}

func TestPercentagesAreWrittenAsTheyAreRead(t *testing.T) {
	for _, text := range []string{"5%", "7%", "14%", "0.1%", "0.0001%", "12.25%", "10000%"} {
		var p percentage
		if err := p.Set(text); err != nil || p.String() != text {
			t.Errorf("%s is written as %s, %v", text, p.String(), err)
		}
	}
}

func TestValuesAreWrittenWithThreeDigits(t *testing.T) {
	for want, got := range map[string]string{
		"1 ms": seconds(1e-3), "20 us": seconds(20e-6), "1.26 s": seconds(1.2599), "0": seconds(0), "100 Mbit/s": bitRate(1e8),
		"1 Gbit/s": bitRate(999.99e6), "unlimited": bitRate(0), "142 Gbit/s": bitRate(141.6e9),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An optimisation that is named twice, or with a space before it, is one.
func TestWhatIfNamesEachOptimisationOnce(t *testing.T) {
	all, err := parseWhatIf("locality=off, locality=off,shadow=off")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, w := range all {
		names = append(names, w.name)
	}
	if got := strings.Join(names, ", "); got != "locality off, shadow off, all of these off" {
		t.Error(got)
	}
	if _, err := parseWhatIf("locality=on"); err == nil {
		t.Error("locality=on was accepted")
	}
}
