package report

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// example is a program with a set-up, two commands of which the second overlaps the first, a
// wait, and an end.
func example(t *testing.T) *trace.Reader {
	t.Helper()
	h := trace.Header{
		API: "opencl", Mode: trace.Remote, Program: trace.Program{Name: "demo"}, Devices: []trace.Device{{Name: "one"}},
		Ops: []trace.Op{{Name: "none"}, {Name: "clBuildProgram"}, {Name: "clEnqueueNDRangeKernel"}, {Name: "clFinish"}, {Name: "clReleaseContext"}},
	}
	var file bytes.Buffer
	w, err := trace.NewWriter(&file, h)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range []trace.Record{
		{Op: 1, Class: trace.WaitedFor, Begin: 100, End: 1100, Gap: 100, Blocked: 900, Forward: 200, Backward: 300, Encode: 10, WireForward: 20, Execute: 800},
		{Op: 2, Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: 1, Begin: 1200, End: 1210, Gap: 100, Start: 2000, DeviceTime: 500, Forward: 128},
		{Op: 2, Class: trace.Early, Blocking: trace.DeviceBlocking, Command: true, Queue: 1, Begin: 1210, End: 1230, Start: 2100, DeviceTime: 700, Forward: 128},
		{Op: 3, Class: trace.WaitedFor, Blocking: trace.HostBlocking, Queue: 1, Begin: 1230, End: 3000, Blocked: 1700, Forward: 40, Backward: 32},
		{Op: 4, Begin: 3100, End: 3150, Gap: 100},
	} {
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(trace.End{Duration: 4000}); err != nil {
		t.Fatal(err)
	}
	r, err := trace.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestSummarize(t *testing.T) {
	s, err := Summarize(example(t))
	if err != nil {
		t.Fatal(err)
	}
	total := Totals{
		Calls: 5, Local: 1, Early: 2, Waited: 2, Commands: 2, Forward: 496, Backward: 332,
		Gap: 300, InCalls: 2850, Blocked: 2600, Execute: 800, Device: 1200,
	}
	if s.Total != total {
		t.Errorf("total %+v, want %+v", s.Total, total)
	}
	var sum Totals
	for _, p := range s.Phases {
		sum.merge(&p.Totals)
	}
	if sum != total {
		t.Errorf("the phases together are %+v, want %+v", sum, total)
	}
	want := []Phase{{Name: "set-up", End: 1200}, {Name: "run", Begin: 1200, End: 3000}, {Name: "end", Begin: 3000, End: 4000}}
	for i, p := range s.Phases {
		if p.Name != want[i].Name || p.Begin != want[i].Begin || p.End != want[i].End {
			t.Errorf("phase %d is %s from %d to %d, want %+v", i, p.Name, p.Begin, p.End, want[i])
		}
	}
	if s.Functions[0].Name != "clFinish" || s.Functions[0].Longest != 1770 {
		t.Errorf("what cost most is %+v, want clFinish", s.Functions[0])
	}
}

// The export holds what the Trace Event Format demands: known phases, times on complete events,
// a beginning for each arrow's end, and events of a track that nest.
func TestPerfetto(t *testing.T) {
	var out bytes.Buffer
	if err := Perfetto(&out, example(t)); err != nil {
		t.Fatal(err)
	}
	var file struct {
		TraceEvents []struct {
			Name     string   `json:"name"`
			Phase    string   `json:"ph"`
			Time     *float64 `json:"ts"`
			Duration *float64 `json:"dur"`
			Process  *uint64  `json:"pid"`
			Thread   *uint64  `json:"tid"`
			ID       string   `json:"id"`
		} `json:"traceEvents"`
	}
	if err := json.Unmarshal(out.Bytes(), &file); err != nil {
		t.Fatalf("%v:\n%s", err, out.Bytes())
	}
	ends, flows, calls := make(map[[2]uint64]float64), make(map[string]bool), 0
	for _, e := range file.TraceEvents {
		if e.Name == "" || e.Time == nil || e.Process == nil || e.Thread == nil {
			t.Fatalf("an event lacks a field that the format demands: %+v", e)
		}
		switch e.Phase {
		case "M":
		case "X":
			track := [2]uint64{*e.Process, *e.Thread}
			switch {
			case e.Duration == nil || *e.Duration < 0:
				t.Errorf("%s is complete and has no duration", e.Name)
			case *e.Time < ends[track]:
				t.Errorf("%s begins at %v, before the end of the track's previous event, %v", e.Name, *e.Time, ends[track])
			default:
				ends[track] = *e.Time + *e.Duration
			}
			calls++
		case "s":
			flows[e.ID] = true
		case "f":
			if !flows[e.ID] {
				t.Errorf("the arrow %s ends and has not begun", e.ID)
			}
		default:
			t.Errorf("unknown phase %q", e.Phase)
		}
	}
	if want := 5 + 1 + 2; calls != want || len(flows) != 2 {
		t.Errorf("%d events and %d arrows, want %d (calls, the worker's, commands) and 2", calls, len(flows), want)
	}
}

// hostile is a program with a thread and a queue for each of many calls, whose sums no integer
// holds.
func hostile(t *testing.T, calls int) *trace.Reader {
	t.Helper()
	var file bytes.Buffer
	w, err := trace.NewWriter(&file, trace.Header{
		API: "opencl", Mode: trace.Local, Program: trace.Program{Name: "a\u009b8mb"}, Devices: []trace.Device{{Name: "\u202eeno"}}, Ops: []trace.Op{{Name: "clEnqueueNDRangeKernel"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	const long = 1 << 59
	for i := range calls {
		r := trace.Record{
			Thread: uint32(i), Command: true, Queue: uint64(i + 1), Begin: int64(i), End: int64(i) + long, Gap: long, Blocked: long, Execute: long,
			Start: int64(i) + 1, DeviceTime: long, Forward: 1 << 50, Backward: 1 << 50,
		}
		if err := w.Write(&r); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(trace.End{Duration: math.MaxInt64}); err != nil {
		t.Fatal(err)
	}
	r, err := trace.NewReader(&file)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// The sums of a hostile trace end at the greatest integer.
func TestHostileSums(t *testing.T) {
	s, err := Summarize(hostile(t, 1<<15))
	if err != nil {
		t.Fatal(err)
	}
	for _, totals := range []Totals{s.Total, s.Phases[1].Totals, s.Functions[0].Totals} {
		for what, got := range map[string]int64{"gap": totals.Gap, "in calls": totals.InCalls, "blocked": totals.Blocked, "execute": totals.Execute, "device": totals.Device} {
			if got != math.MaxInt64 {
				t.Errorf("%s: %d", what, got)
			}
		}
		if totals.Forward != math.MaxUint64 || totals.Backward != math.MaxUint64 {
			t.Errorf("bytes: %d, %d", totals.Forward, totals.Backward)
		}
	}
}

// Names do not control the terminal to which they are written, and an export keeps a bounded number
// of tracks.
func TestHostileExport(t *testing.T) {
	const calls = maxSets + 1000
	var out bytes.Buffer
	p := newPerfetto(&out, hostile(t, calls))
	if err := p.export(); err != nil {
		t.Fatal(err)
	}
	if strings.ContainsAny(out.String(), "\u009b\u202e") {
		t.Error("names control the terminal")
	}
	if n := bytes.Count(out.Bytes(), []byte(`"ph":"X"`)); n != 2*calls || len(p.named) > maxSets+1 || len(p.lastEnd) > maxSets {
		t.Errorf("%d events of %d calls, %d names, %d lanes", n, calls, len(p.named), len(p.lastEnd))
	}
}

func TestCSV(t *testing.T) {
	var out strings.Builder
	if err := CSV(&out, example(t)); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(out.String())).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 6 || rows[0][2] != "function" || rows[2][2] != "clEnqueueNDRangeKernel" || rows[2][20] != "2000" {
		t.Errorf("rows are %q", rows)
	}
}
