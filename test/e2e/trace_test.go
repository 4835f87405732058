package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/opencl/cltest"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/need"
)

// A program does not see that it is recorded, neither on the local device, whose driver has a
// layer in front, nor on a borrowed one.
func TestRecordedPrograms(t *testing.T) {
	sharesDevice(t)
	tests := differentialSuite(t)
	r := shared(t)
	for name, flags := range map[string][]string{"local": {"--local"}, "borrowed": {"--memory", "2GiB", "--timeout", patience.String()}} {
		t.Run(name, func(t *testing.T) {
			programs, differ := []string{"event", "map", "memory", "kernel"}, map[string]string{}
			skip := map[string]string{
				"event/callback_of_failure": "PoCL 3.1 never calls back for a command whose wait list failed",
				"event/old_wait":            "PoCL 3.1 aborts: clEnqueueWaitForEvents is not there",
				"event/set_property":        "PoCL 3.1 crashes in clSetCommandQueueProperty",
			}
			if name == "borrowed" {
				programs, differ, skip = recordedWhenBorrowed, differs(), nil
			}
			dir := t.TempDir()
			tests.Compare(t, cltest.Options{InTurn: true, Differs: differ, Skip: skip, Programs: programs, Through: func(cmd *exec.Cmd) {
				file, err := os.CreateTemp(dir, "*.trace")
				if err != nil {
					t.Fatal(err)
				}
				_ = file.Close()
				args := append([]string{"run", "--trace", file.Name()}, flags...)
				run := r.Node("dinghy").Command(t.Context(), append(append(args, "--", cmd.Path), cmd.Args[1:]...)...)
				cmd.Path, cmd.Args = run.Path, run.Args
				cmd.Env = append(cmd.Environ(), "OUTBOARD_DATA="+r.Node("dinghy").Data())
			}})
		})
	}
}

// summary is what `outboard trace show -o json` says of a trace.
type summary struct {
	Mode      string
	Truncated bool
	Lost      int
	Duration  int64 `json:"duration_ns"`
	Total     struct {
		Calls, Commands, Early int
		Waited                 int   `json:"waited_for"`
		Forward                int64 `json:"forward_bytes"`
		Backward               int64 `json:"backward_bytes"`
		Blocked                int64 `json:"blocked_ns"`
		Device                 int64 `json:"device_ns"`
	}
	Functions []struct {
		Name     string
		Calls    int
		Commands int
		Device   int64 `json:"device_ns"`
	}
}

// Local and remote recordings of one program agree: the same calls, messages and round trips, in
// few bytes.
func TestTraces(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clblast_test_xaxpy")
	r := shared(t)
	program := suite.CLBlast("xaxpy").Args
	counted := map[string]map[string]overhead.Traffic{}
	for name, flags := range map[string][]string{"local": {"--local"}, "remote": nil} {
		file := filepath.Join(t.TempDir(), name+".trace")
		args := append(append([]string{"run", "--trace", file}, flags...), append([]string{"--"}, program...)...)
		if out, err := r.Node("dinghy").Command(t.Context(), args...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		text, err := r.Node("dinghy").Output(t.Context(), "trace", "show", file, "-o", "json")
		if err != nil {
			t.Fatal(err)
		}
		var s summary
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err)
		}
		counted[name] = countTraffic(t, file)
		info, err := os.Stat(file)
		if err != nil {
			t.Fatal(err)
		}
		header := int64(12 << 10) // the names of all functions
		if perCall := float64(info.Size()-header) / float64(s.Total.Calls); perCall > 24 {
			t.Errorf("%s: %.1f bytes per call, more than 24", name, perCall)
		}
		if s.Mode != name || s.Truncated || s.Lost > 0 || s.Total.Commands == 0 || s.Total.Device <= 0 || s.Total.Blocked <= 0 {
			t.Errorf("%s: %+v", name, s)
		}
		if entries, _ := filepath.Glob(file + ".recording*"); len(entries) > 0 {
			t.Errorf("%s: %v is left", name, entries)
		}
	}
	compareTraffic(t, counted["local"], counted["remote"])
}

// A calibration has the worker's times of each of its waits, the last ones included: it refuses a
// recording that lacks any.
func TestCalibrationsAreRecordedToTheEnd(t *testing.T) {
	sharesDevice(t)
	if out, err := shared(t).Node("dinghy").Command(t.Context(), "calibrate", "--rounds", "1").CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// releasedLate are the calls whose message is sent with a later one: a context is released with its
// last object, a program with its last kernel, and a queue with its last event.
var releasedLate = map[string]bool{"clReleaseContext": true, "clReleaseProgram": true, "clReleaseCommandQueue": true}

// releases returns the sum of all calls that release objects.
func releases(of map[string]overhead.Traffic) overhead.Traffic {
	all := map[string]overhead.Traffic{}
	for name, traffic := range of {
		if strings.HasPrefix(name, "clRelease") {
			all[name] = traffic
		}
	}
	return overhead.Sum(all)
}

// compareTraffic wants the same calls, round trips and messages from the recordings of a local and
// a remote run of one program, but for what is named here.
func compareTraffic(t *testing.T, local, remote map[string]overhead.Traffic) {
	t.Helper()
	// The first call opens the session, and how often platforms are listed is the loader's choice.
	opening := map[string]bool{"clGetPlatformIDs": true, "clGetPlatformInfo": true, "clGetDeviceIDs": true}
	// Binaries differ with what the driver has cached.
	replies := map[string]bool{"clGetProgramInfo": true}
	late := uint64(0)
	for name, want := range remote {
		got := local[name]
		if opening[name] {
			continue
		}
		if got.Calls != want.Calls || got.Waited != want.Waited || got.Early != want.Early && !releasedLate[name] {
			t.Errorf("%s: locally %+v, remotely %+v", name, got, want)
		}
		slack := uint64(0)
		switch {
		case releasedLate[name]:
			late += want.Calls
			continue
		case strings.HasPrefix(name, "clRelease"):
			continue // it may send others' messages
		case name == "clCreateProgramWithBinary": // binaries have paths of the driver's cache
			slack = want.Up / 100
		case facts[name]: // the texts about arguments are estimated
			slack = want.Down / 4
		case name == "clEnqueueSVMFree": // what it releases meanwhile depends on the time
			slack = 2 * 48
		}
		if !within(got.Up, want.Up, slack) || !replies[name] && !within(got.Down, want.Down, slack) {
			t.Errorf("%s: %d bytes there and %d back locally, %d and %d remotely", name, got.Up, got.Down, want.Up, want.Down)
		}
	}
	if got, want := releases(local), releases(remote); !within(got.Up, want.Up, 64*late) {
		t.Errorf("objects are released with %d bytes locally, %d remotely", got.Up, want.Up)
	}
}

func within(a, b, slack uint64) bool { return max(a, b)-min(a, b) <= slack }

// countTraffic is what a program sends by its recording.
func countTraffic(t *testing.T, file string) map[string]overhead.Traffic {
	t.Helper()
	return countTrafficWithout(t, file, overhead.WhatIf{})
}

func countTrafficWithout(t *testing.T, file string, what overhead.WhatIf) map[string]overhead.Traffic {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	of, err := overhead.Count(func() (overhead.Source, error) { return trace.NewReader(bytes.NewReader(raw)) }, what)
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// Programs of other shapes have the same messages in a local and in a remote recording: chains of
// events on a queue that is out of order, images and buffers that are mapped, two threads, a program in
// parts.
func TestTracesOfOtherPrograms(t *testing.T) {
	sharesDevice(t)
	for _, name := range []string{"binaries", "chains", "parts", "pictures", "threads"} {
		t.Run(name, func(t *testing.T) {
			local, remote := recordBothWays(t, name)
			compareTraffic(t, local, remote)
		})
	}
}

// Queues with properties that only the driver can check cost a round trip each, also those that it
// refuses.
func TestTracesOfUnusualQueues(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "cc")
	local, remote := recordProgram(t, build(t, "cc", "traced/queues.c", "-lOpenCL"))
	compareTraffic(t, local, remote)
	if got := local["clCreateCommandQueueWithProperties"].Waited; got < 4 {
		t.Errorf("%d queues are waited for", got)
	}
}

// A local recording has the calls of every loader of a process.
func TestTracesOfSeveralLoaders(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "cc")
	loaders, _ := filepath.Glob("/usr/lib/*/libOpenCL.so.1")
	need.Require(t, "ocl-icd-libopencl1", len(loaders) > 0, "install ocl-icd-libopencl1")
	content, err := os.ReadFile(loaders[0])
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "libOpenCL-other.so.1")
	if err := os.WriteFile(other, content, 0o755); err != nil {
		t.Fatal(err)
	}
	local, remote := recordProgram(t, build(t, "cc", "traced/loaders.c", "-lOpenCL", "-ldl"), other)
	compareTraffic(t, local, remote)
}

// A program that polls events, or has callbacks wake it, waits as often as there are notices, and sends a
// message for each: how often it polls depends on the time.
func TestTracesOfPollsAndCallbacks(t *testing.T) {
	sharesDevice(t)
	const rounds = 20 // in polls.py
	local, remote := recordBothWays(t, "polls")
	for _, name := range []string{"clGetEventInfo", "clSetEventCallback"} {
		got, want := local[name], remote[name]
		got.Calls, want.Calls = 0, 0
		if got != want || got.Waited != rounds || got.Early != rounds {
			t.Errorf("%s: locally %+v, remotely %+v, want %d messages and waits", name, got, want, rounds)
		}
	}
}

// recordBothWays counts the messages of a program of testdata/traced by a local and a remote recording.
func recordBothWays(t *testing.T, name string) (local, remote map[string]overhead.Traffic) {
	t.Helper()
	need.Require(t, "python3-pyopencl", exists("/usr/lib/python3/dist-packages/pyopencl"), "install python3-pyopencl")
	script, err := filepath.Abs(filepath.Join("testdata", "traced", name+".py"))
	if err != nil {
		t.Fatal(err)
	}
	return recordProgram(t, "/usr/bin/python3", script)
}

// recordProgram counts the messages of a program by a local and a remote recording.
func recordProgram(t *testing.T, program ...string) (local, remote map[string]overhead.Traffic) {
	t.Helper()
	r := shared(t)
	outputs, counted := map[string]string{}, map[string]map[string]overhead.Traffic{}
	for mode, flags := range map[string][]string{"local": {"--local"}, "remote": nil} {
		file := filepath.Join(t.TempDir(), mode+".trace")
		cmd := r.Node("dinghy").Command(t.Context(), append(append([]string{"run", "--no-trace", "--trace", file}, flags...), append([]string{"--"}, program...)...)...)
		cmd.Env = append(cmd.Env, "PYOPENCL_NO_CACHE=1")
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s: %v\n%s", mode, err, stderr.String())
		}
		outputs[mode], counted[mode] = stdout.String(), countTraffic(t, file)
	}
	if outputs["local"] != outputs["remote"] {
		t.Errorf("it prints %q locally, and %q remotely", outputs["local"], outputs["remote"])
	}
	return counted["local"], counted["remote"]
}

// What a what-if says that a program would send without an optimisation is what it sends without
// it.
func TestWhatIfCountsWhatHappens(t *testing.T) {
	sharesDevice(t)
	need.Program(t, "clblast_test_xdot")
	r := shared(t)
	record := func(without string) string {
		t.Helper()
		file := filepath.Join(t.TempDir(), "remote.trace")
		cmd := r.Node("dinghy").Command(t.Context(), append([]string{"run", "--trace", file, "--no-trace", "--"}, suite.CLBlast("xdot").Args...)...)
		cmd.Env = append(cmd.Env, "OUTBOARD_WITHOUT="+without)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("without %q: %v\n%s", without, err, out)
		}
		return file
	}
	with := record("")
	for name, what := range map[string]overhead.WhatIf{"async": {NoAsync: true}, "shadow": {NoShadow: true}, "locality": {NoLocality: true}} {
		predicted, happened := countTrafficWithout(t, with, what), countTraffic(t, record(name))
		if name == "locality" {
			compareWithoutLocality(t, predicted, happened)
			continue
		}
		if p, h := predicted["clCreateBuffer"], happened["clCreateBuffer"]; p.Waited != p.Calls || h != p && h.Early > 0 {
			t.Errorf("without %s: buffers are created by %+v, predicted %+v", name, h, p)
		}
		for function, plain := range countTraffic(t, with) {
			// The other calls wait as they did, or for what has come in time.
			if p, h := predicted[function], happened[function]; plain.Early > 0 && !releasedLate[function] && (p.Waited != h.Waited || p.Early != h.Early) {
				t.Errorf("%s without %s: predicted %+v, happened %+v", function, name, p, h)
			}
		}
	}
}

// compareWithoutLocality compares the messages of all calls but the first ones, which come before
// there is a session.
func compareWithoutLocality(t *testing.T, predicted, happened map[string]overhead.Traffic) {
	t.Helper()
	if happened["clGetDeviceInfo"].Waited == 0 || happened["clSetKernelArg"].Early != happened["clSetKernelArg"].Calls {
		t.Errorf("queries of the device: %+v, arguments: %+v; want round trips, and a message each", happened["clGetDeviceInfo"], happened["clSetKernelArg"])
	}
	for function, p := range predicted {
		if h := happened[function]; !releasedLate[function] && (p.Waited != h.Waited || p.Early != h.Early) {
			t.Errorf("%s without locality: predicted %+v, happened %+v", function, p, h)
		}
	}
}

// A file that is no trace, and one that was cut off, say so.
func TestBadTraces(t *testing.T) {
	sharesDevice(t)
	r := shared(t)
	file := filepath.Join(t.TempDir(), "bad.trace")
	if err := os.WriteFile(file, []byte("not a trace at all, but some text"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := r.Node("dinghy").Command(t.Context(), "trace", "show", file).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "not a trace: make one with") {
		t.Errorf("%v: %s", err, out)
	}
}
