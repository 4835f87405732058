package cli

import (
	"bytes"
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/trace"
	"github.com/outboard-run/outboard/internal/accel/trace/report"
)

func TestTraceShow(t *testing.T) {
	path := demoTrace(t)
	stdout, stderr, status := runCommand(t, "trace", "show", path)
	for _, want := range []string{
		"demo ran 1s on this machine's own drivers: d\n", "200 calls by 1 thread in 1 process, 1 queue: 0 answered locally, 100 early, 100 waited for\n",
		"15.6KiB to the device, 3.1KiB back", "device busy 900ms\n", "\nPHASE ", "\nFUNCTION ", "\nclFinish ", "\nclEnqueueNDRangeKernel ",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("%q is not in\n%s", want, stdout)
		}
	}
	if status != 0 || stderr != "" {
		t.Errorf("status %d: %s", status, stderr)
	}
	if stdout, _, _ = runCommand(t, "trace", "show", path, "--functions", "1"); strings.Count(stdout, "\ncl") != 1 {
		t.Errorf("with --functions 1 it shows\n%s", stdout)
	}
	stdout, _, _ = runCommand(t, "trace", "show", path, "-o", "json")
	var s report.Summary
	if err := json.Unmarshal([]byte(stdout), &s); err != nil || s.Total.Calls != 200 {
		t.Errorf("as JSON it is %+v: %v", s, err)
	}
}

// A recording that was cut off, as of a program that was killed, is shown as far as it goes.
func TestTraceShowOfAnIncompleteFile(t *testing.T) {
	path := demoTrace(t)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, content[:len(content)-1], 0o600); err != nil {
		t.Fatal(err)
	}
	if stdout, stderr, status := runCommand(t, "trace", "show", path); status != 0 || !strings.Contains(stdout, "The trace was cut off") {
		t.Errorf("status %d: %s%s", status, stdout, stderr)
	}
	for _, args := range [][]string{{"trace", "export", path}, {"plan", path, "--rtt", "1ms"}, {"plan", path, "--plot", filepath.Join(t.TempDir(), "x.svg")}} {
		if stdout, stderr, status := runCommand(t, args...); status != 0 || strings.Count(stderr, "was cut off: ") != 1 {
			t.Errorf("%v: status %d: %s%s", args, status, stdout, stderr)
		}
	}
	for want, args := range map[string][]string{
		"--functions -1: want 0 or more": {"show", path, "--functions", "-1"},
		"name one trace":                 {"show"},
		"no such file":                   {"show", "none.trace"},
		"want perfetto or csv":           {"export", path, "--format", "pdf"},
		"trace_test.go: ":                {"export", "trace_test.go"},
	} {
		if _, stderr, status := runCommand(t, append([]string{"trace"}, args...)...); status == 0 || !strings.Contains(stderr, want) {
			t.Errorf("trace %v: status %d, %q, want %q in it", args, status, stderr, want)
		}
	}
}

func TestTraceExport(t *testing.T) {
	path, file := demoTrace(t), filepath.Join(t.TempDir(), "out.json")
	if _, stderr, status := runCommand(t, "trace", "export", path, "--file", file); status != 0 {
		t.Fatalf("status %d: %s", status, stderr)
	}
	content, err := os.ReadFile(file)
	var events struct{ TraceEvents []json.RawMessage }
	if err != nil || json.Unmarshal(content, &events) != nil || len(events.TraceEvents) < 200 {
		t.Errorf("a JSON of %d bytes has %d events: %v", len(content), len(events.TraceEvents), err)
	}
	stdout, _, _ := runCommand(t, "trace", "export", path, "--format", "csv")
	rows, err := csv.NewReader(strings.NewReader(stdout)).ReadAll()
	if err != nil || len(rows) != 201 {
		t.Errorf("a table of 200 calls has %d rows with its title: %v", len(rows), err)
	}
}

// Reading a long trace takes minutes: an interrupt ends it.
func TestTracesAreReadUntilAnInterrupt(t *testing.T) {
	path, data := demoTrace(t), t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, args := range [][]string{{"trace", "show", path}, {"trace", "export", path}, {"plan", path, "--rtt", "1ms"}} {
		var out, errs bytes.Buffer
		env := &Env{Stdout: &out, Stderr: &errs, Environ: []string{"OUTBOARD_DATA=" + data}}
		if status := env.Run(ctx, args); status != statusInterrupted || !strings.HasSuffix(errs.String(), "outboard: interrupted\n") {
			t.Errorf("%v: status %d: %s%s", args, status, out.String(), errs.String())
		}
	}
}

// A plan says that calls are missing, and such a recording is not kept for the choice of devices.
func TestTraceThatLacksCalls(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lost.trace")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w, err := trace.NewWriter(f, trace.Header{
		API: "opencl", Mode: trace.Local, Devices: []trace.Device{{Name: "d"}}, Ops: []trace.Op{{Name: "clFinish", Answer: "wait"}},
	})
	end := trace.End{Duration: 2000, Lost: 7}
	if err == nil {
		err = errors.Join(w.Write(&trace.Record{Class: trace.WaitedFor, Queue: 1, End: 1000}), w.Close(end), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := runCommand(t, "plan", path, "--rtt", "1ms"); status != 0 || !strings.Contains(stderr, "lost.trace lacks 7 calls: ") {
		t.Errorf("status %d: %s", status, stderr)
	}
	end.Records = 1
	if isWholeRun(&end, 0, false) || isWholeRun(&trace.End{Records: 1}, 0, true) || isWholeRun(&trace.End{Records: 1}, 1, false) {
		t.Error("it is kept")
	}
}

// An error is reported once.
func TestTraceExportWithoutSpace(t *testing.T) {
	path := demoTrace(t)
	for _, format := range []string{"perfetto", "csv"} {
		_, stderr, status := runCommand(t, "trace", "export", path, "--format", format, "--file", "/dev/full")
		if status != statusOther || strings.Count(stderr, "no space left on device") != 1 {
			t.Errorf("%s: status %d: %s", format, status, stderr)
		}
	}
}

// An export does not overwrite the trace that it reads.
func TestTraceExportIntoItself(t *testing.T) {
	path := demoTrace(t)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := runCommand(t, "trace", "export", path, "--file", path); status == 0 || !strings.Contains(stderr, "is the trace itself") {
		t.Errorf("status %d: %s", status, stderr)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, before) {
		t.Errorf("the trace has %d bytes, and had %d: %v", len(after), len(before), err)
	}
}
