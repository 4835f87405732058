package ctest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/shm"
)

var areas = []int{shm.MinArea, 64 << 10, 1 << 20}

// forAreas runs a test over rings of several sizes: what fits in one is sent in pieces over another.
func forAreas(t *testing.T, run func(t *testing.T, area int)) {
	for _, area := range areas {
		t.Run(fmt.Sprint(area), func(t *testing.T) { run(t, area) })
	}
}

// TestCalls: bodies and bulk of all sizes come back as they went, in rows and slices too, interrupted
// by signals.
func TestCalls(t *testing.T) {
	forAreas(t, func(t *testing.T, area int) {
		for _, mode := range []string{"echo", "mirror"} {
			listen(t, area).must(mode, fmt.Sprint(4*area), "1")
		}
	})
}

// TestEarly: what needs no answer arrives, all of it, before the next answer.
func TestEarly(t *testing.T) {
	forAreas(t, func(t *testing.T, area int) {
		if got := listen(t, area).must("early", "20000"); got != "20000" {
			t.Errorf("%s of 20000 early messages arrived", got)
		}
	})
}

// TestTracks: data of early reads arrives where it belongs, and its handler runs under no lock of the
// program.
func TestTracks(t *testing.T) {
	forAreas(t, func(t *testing.T, area int) {
		listen(t, area).must("tracks", "200", fmt.Sprint(2*area))
	})
}

// maxDeferred is the library's bound on the bytes of notices that arrive during a send.
const maxDeferred = 64 << 20

// TestBothWays: neither end waits for the other when both have more to send than fits into the
// ring, and no handler runs inside a send.
func TestBothWays(t *testing.T) {
	forAreas(t, func(t *testing.T, area int) {
		count := min(300, maxDeferred/2/(area/2))
		listen(t, area).must("flood", fmt.Sprint(count), fmt.Sprint(area/2))
	})
}

func TestNotices(t *testing.T) {
	forAreas(t, func(t *testing.T, area int) {
		s := listen(t, area)
		for _, bulk := range []int{0, 1, 3 * area} {
			if got, want := s.must("notices", "50", "64", fmt.Sprint(bulk)), fmt.Sprintf("50 of %d", bulk); got != want {
				t.Errorf("notices: %q, want %q", got, want)
			}
		}
	})
}

// TestThreads: many threads call at the same time, without and with a listener.
func TestThreads(t *testing.T) {
	forAreas(t, func(t *testing.T, area int) {
		for _, listener := range []string{"0", "1"} {
			listen(t, area).must("threads", "8", "300", fmt.Sprint(area), listener)
		}
	})
}

// TestListener: notices are delivered while no call waits; a nudge runs the upper layer's work.
func TestListener(t *testing.T) { listen(t, 64<<10).must("listener", "200") }

// TestAlone: messages say so until a second thread or a listener is there, and never after.
func TestAlone(t *testing.T) {
	if got, want := listen(t, 64<<10).must("alone"), "10 then 0"; got != want {
		t.Errorf("alone: %q, want %q", got, want)
	}
}

// TestDeath: whatever ends the session, all waiting calls return, calls give the dead status, and one
// line says why.
func TestDeath(t *testing.T) {
	tests := map[string]struct {
		op, arg string
		want    string
	}{
		"clean":        {"7", "0", "the worker ended it"},
		"lease lost":   {"7", "7", "its lease expired or was revoked"},
		"unreachable":  {"7", "8", "the device's node does not answer"},
		"session lost": {"7", "9", "the worker or the connection to it is gone"},
		"other":        {"7", "4242", "something went wrong on the device's node"},
		"hang up":      {"9", "0", "outboard run is gone"},
	}
	for name, test := range tests {
		for _, listener := range []string{"0", "1"} {
			t.Run(name+" "+listener, func(t *testing.T) {
				t.Parallel()
				o := listen(t, 64<<10).run("death", test.op, test.arg, listener)
				if o.failed != nil {
					t.Fatalf("%v\n%s\n%s", o.failed, o.out, o.err)
				}
				if diff := cmp.Diff("outboard: the session was lost: "+test.want, o.err); diff != "" {
					t.Error(diff)
				}
			})
		}
	}
}

// TestMisbehaviour: a worker's nonsense ends the session and nothing else.
func TestMisbehaviour(t *testing.T) {
	for kind := range 12 {
		t.Run(fmt.Sprint(kind), func(t *testing.T) {
			t.Parallel()
			o := listen(t, 64<<10).run("death", "10", fmt.Sprint(kind), "0")
			if o.failed != nil || !strings.HasPrefix(o.err, "outboard: the session was ") || strings.Count(o.err, "\n") != 0 {
				t.Errorf("%v\n%s\n%s", o.failed, o.out, o.err)
			}
		})
	}
}

// TestDescriptors: a program that closes all descriptors, or reuses their numbers, gets answers or
// errors, and its own files stay whole.
func TestDescriptors(t *testing.T) {
	for _, mode := range []string{"close_all", "reuse"} {
		o := listen(t, 64<<10).run(mode)
		if o.failed != nil {
			t.Errorf("%s: %v\n%s\n%s", mode, o.failed, o.out, o.err)
		}
	}
}

// TestClose: closing while threads are inside ends their calls; closing unmaps the ring and ends the
// listener.
func TestClose(t *testing.T) {
	listen(t, 64<<10).must("close", "0")
	listen(t, 64<<10).must("close", "1")
	listen(t, 64<<10).must("exit")
}

// TestFork: a child's calls fail at once, and neither its calls nor its end disturb the parent.
func TestFork(t *testing.T) { listen(t, 64<<10).must("fork") }

func TestRefused(t *testing.T) {
	s := listen(t, 64<<10)
	s.refuse.Store("lease 3: revoked\x1b[2J")
	if got, want := s.must("refused"), "lease 3: revoked [2J"; got != want {
		t.Errorf("refused: %q, want %q", got, want)
	}
	s.path = "/nonexistent/socket"
	if got := s.must("refused"); !strings.Contains(got, "nothing answers at /nonexistent/socket") {
		t.Errorf("no socket: %q", got)
	}
}

// BenchmarkSession prints what calls cost against a worker that does nothing. Set
// OUTBOARD_TEST_SANITIZE=none.
func BenchmarkSession(b *testing.B) {
	b.Log(listen(b, shm.DefaultArea).must("bench", fmt.Sprint(max(b.N, 1000))))
}
