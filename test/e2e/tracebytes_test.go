package e2e

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// The bytes that a local recording predicts, function by function, are those on the wire of a borrowed
// run, for the corners of OpenCL that package cltest has.
func TestTracesOfDifferentialPrograms(t *testing.T) {
	sharesDevice(t)
	tests, r := differentialSuite(t), shared(t)
	for _, name := range tracedDifferential {
		t.Run(name, func(t *testing.T) {
			var cases []string
			for _, of := range tests.Cases(t, name) {
				if !differsAs(name + "/" + of) {
					cases = append(cases, "-case", of)
				}
			}
			counted := map[string]map[string]overhead.Traffic{}
			for mode, flags := range map[string][]string{"local": {"--local"}, "remote": {"--memory", "2GiB", "--timeout", patience.String()}} {
				file := filepath.Join(t.TempDir(), mode+".trace")
				args := append(append([]string{"run", "--no-trace", "--trace", file}, flags...), "--", tests.Path(name))
				if out, err := r.Node("dinghy").Command(t.Context(), append(args, cases...)...).CombinedOutput(); err != nil {
					t.Logf("%s: %v\n%s", mode, err, out)
				}
				counted[mode] = countSuccesses(t, file)
			}
			compareBytes(t, counted["local"], counted["remote"])
		})
	}
}

// differsAs reports whether a case may do otherwise on a borrowed device.
func differsAs(name string) bool {
	for row := range differs() {
		if row == name || strings.HasPrefix(row, name+" ") {
			return true
		}
	}
	return false
}

// successes are the calls of a trace that did not fail. The library answers most wrong calls itself, and
// the driver some that the library does not.
type successes struct{ *trace.Reader }

func (s successes) Next() (trace.Record, error) {
	for {
		r, err := s.Reader.Next()
		if err != nil || !r.Failed {
			return r, err
		}
	}
}

// countSuccesses counts the messages of the calls that did not fail.
func countSuccesses(t *testing.T, file string) map[string]overhead.Traffic {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	of, err := overhead.Count(func() (overhead.Source, error) {
		r, err := trace.NewReader(bytes.NewReader(raw))
		return successes{r}, err
	}, overhead.WhatIf{})
	if err != nil {
		t.Fatal(err)
	}
	return of
}

// compareBytes wants the same bytes in both directions, but for what is named here.
func compareBytes(t *testing.T, local, remote map[string]overhead.Traffic) {
	t.Helper()
	for name, want := range remote {
		got := local[name]
		if uncounted[name] != "" || strings.HasPrefix(name, "clRelease") {
			continue
		}
		// Some cases are refused on one side only, and some messages depend on what is complete by then.
		slack := max(want.Up, want.Down)/20 + 512
		if facts[name] {
			slack = want.Down/4 + 64 // texts about arguments are estimated
		}
		if !within(got.Up, want.Up, slack) || !within(got.Down, want.Down, slack) || !within(got.Waited, want.Waited, 2+want.Waited/20) {
			t.Errorf("%s: locally %+v, remotely %+v", name, got, want)
		}
	}
	if got, want := releases(local), releases(remote); !within(got.Up, want.Up, want.Up/20+64) {
		t.Errorf("objects are released with %d bytes locally, %d remotely", got.Up, want.Up)
	}
}

// uncounted are the functions whose messages a local recording does not predict, and why.
var uncounted = map[string]string{
	"clGetPlatformIDs": "it opens the session",
	"clGetProgramInfo": "binaries differ with what the driver has cached",
}

// facts are the functions whose replies have facts about a program.
var facts = map[string]bool{"clBuildProgram": true, "clCompileProgram": true, "clLinkProgram": true}

// tracedDifferential are the programs of package cltest that have no timing, threads or failures of their
// own.
var tracedDifferential = []string{"image", "kernel", "map", "memory", "svm"}
