package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// Measurements that are kept are evaluated to the predictions that were made when they were measured.
func TestKeptMeasurements(t *testing.T) {
	b := &bench{constants: overhead.DefaultConstants(), rtt: 50 * time.Microsecond}
	b.keep = archive(filepath.Join(t.TempDir(), "kept"))
	if err := b.keep.create(); err != nil {
		t.Fatal(err)
	}
	p := &program{Program: suite.Program{Name: "a program"}, references: []run{{seconds: 0.1}}, traces: map[trace.Mode][]recording{}}
	for _, mode := range []trace.Mode{trace.Local, trace.Remote} {
		p.traces[mode] = []recording{{run{seconds: 0.1}, writeTrace(t, filepath.Join(b.traceFolder(), "a."+string(mode)))}}
	}
	p.chooseTraces()
	r := &result{program: p, link: &link{netem.Link{RTT: time.Millisecond}}, runs: []run{{seconds: 0.1}, {seconds: 0.2}, {seconds: 0.3, disturbed: true}}}
	of := keepCase(b, r)
	if err := b.keep.add(p, &b.constants, of); err != nil {
		t.Fatal(err)
	}
	if err := predictCases(b.options(), p, []*result{r}, []keptCase{of}); err != nil {
		t.Fatal(err)
	}
	replay := keptCase{Name: "rtt=1ms", Link: of.Link, Runs: keptRuns(r.runs[:1]), Trace: "a.remote"}
	if err := b.keep.add(p, &b.constants, replay); err != nil {
		t.Fatal(err)
	}
	var report bytes.Buffer
	if err := evaluateKept(&report, string(b.keep)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{strings.Split(caseTable([]*result{r}), "\n")[2], "a run predicted from its own trace"} {
		if !strings.Contains(report.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, report.String())
		}
	}
	if err := b.keep.create(); err == nil {
		t.Error("measurements of two runs would mix")
	}
	if err := evaluateKept(&report, t.TempDir()); err == nil {
		t.Error("an empty folder has been evaluated")
	}
}

// writeTrace writes a trace with a call that waits, and returns the name of its file.
func writeTrace(t *testing.T, file string) string {
	t.Helper()
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	header := *syntheticHeader
	header.Started = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	header.Mode = trace.Mode(strings.TrimPrefix(filepath.Ext(file), "."))
	w, err := trace.NewWriter(f, header)
	if err == nil {
		err = w.Write(&trace.Record{Op: 2, Class: trace.WaitedFor, Gap: 1000, Begin: 1000, End: 50_000, Execute: 40_000, Forward: 72, Backward: 40})
	}
	if err == nil {
		err = w.Close(trace.End{Duration: 100_000})
	}
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// A trace that was complete 2 s after its program's start had been written for the time since the
// program's end.
func TestJoinTime(t *testing.T) {
	file := writeTrace(t, filepath.Join(t.TempDir(), "a.remote"))
	written := time.Date(2026, 11, 30, 12, 0, 2, 0, time.UTC)
	if err := os.Chtimes(file, written, written); err != nil {
		t.Fatal(err)
	}
	if took, err := joinTime(file); err != nil || took != 2*time.Second-100*time.Microsecond {
		t.Errorf("%v, %v", took, err)
	}
}
