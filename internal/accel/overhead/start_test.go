package overhead

import (
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// A session opens beside a program: only the rest of its opening delays the first call.
func TestSessionOpensBesideTheProgram(t *testing.T) {
	c := zero()
	c.StartUp, c.Open, c.StartUpTrips, c.OpenTrips = 20*time.Millisecond, 100*time.Millisecond, 4, 3
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		constants  Constants
		first, rtt time.Duration
		want       time.Duration // besides the program's own time and the two calls
	}{
		"the first call at once":    {c, 0, 0, 120 * ms},
		"after a part":              {c, 30 * ms, 0, 90 * ms},
		"after the opening":         {c, 100 * ms, 0, 20 * ms},
		"long after":                {c, time.Second, 0, 20 * ms},
		"at once, with round trips": {c, 0, 50 * ms, 320 * ms},
		"after a part of these":     {c, 200 * ms, 50 * ms, 120 * ms},
		"after all of these":        {c, 400 * ms, 50 * ms, 70 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProgram()
			p.launch(c.first, 0)
			p.finish(0)
			r := p.exit(0)
			got, err := Predict(r.open, []Link{{RTT: c.rtt}}, Options{Constants: c.constants})
			if err != nil {
				t.Fatal(err)
			}
			within(t, "the start", got[0].Wall-c.first-c.rtt, c.want, ms)
		})
	}
}

// The first call of a remote recording waited for the session: that is one of the opening's round
// trips.
func TestFirstRemoteCallIsARoundTripOfTheOpening(t *testing.T) {
	wall := func(opening int, set func(*recording)) time.Duration {
		c := zero()
		c.StartUpTrips, c.OpenTrips = 4, opening
		p := newProgram()
		p.finish(time.Millisecond)
		p.launch(0, 0)
		r := p.exit(0)
		set(r)
		got, err := Predict(r.open, []Link{{RTT: 100 * time.Millisecond}}, Options{Constants: c})
		if err != nil {
			t.Fatal(err)
		}
		return got[0].Wall
	}
	remote := func(r *recording) { r.header.Mode = trace.Remote }
	for _, opening := range []int{0, 1, 3} {
		local := wall(opening, func(*recording) {})
		within(t, "a trip less", local-wall(opening, remote), 100*time.Millisecond, 2*time.Millisecond)
	}
}

// The loading of the machine's own driver is in a local recording, before its first call, and in no
// leased run: a run on the machine's own device takes longer by it than a leased one's recording tells.
func TestLeasedRunDoesNotLoadTheDriver(t *testing.T) {
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		mode                   trace.Mode
		load, first, want, own time.Duration
	}{
		"local":                       {trace.Local, 50 * ms, 80 * ms, 30 * ms, 80 * ms},
		"local, sooner than expected": {trace.Local, 50 * ms, 20 * ms, 0, 20 * ms},
		"remote":                      {trace.Remote, 50 * ms, 80 * ms, 80 * ms, 130 * ms},
	} {
		p := newProgram()
		p.launch(c.first, 0)
		p.finish(0)
		r := p.exit(0)
		r.header.Mode = c.mode
		constants := zero()
		constants.DriverLoad = c.load
		got, err := Predict(r.open, []Link{{}}, Options{Constants: constants})
		if err != nil {
			t.Fatal(err)
		}
		within(t, name, got[0].Wall, c.want, ms)
		within(t, name+", on its own device", got[0].Local, c.own, ms)
	}
}

// Each process of a program opens a session of its own. Only the first one's opens beside the program.
func TestFurtherProcessesOpenSessions(t *testing.T) {
	const ms, processes = time.Millisecond, 5
	c := zero()
	c.Open, c.OpenTrips, c.StartUpTrips, c.DriverLoad = 100*ms, 3, 3, 40*ms
	for _, mode := range []trace.Mode{trace.Local, trace.Remote} {
		p := newProgram()
		for range processes {
			p.finish(50 * ms) // after the process's start
		}
		r := p.exit(0)
		r.header.Mode, r.header.Devices[0].Link.RTT = mode, int64(ms)
		for i := range r.records {
			r.records[i].Process, r.records[i].Queue, r.records[i].Blocking = uint32(i), 0, trace.NonBlocking
		}
		if mode == trace.Remote { // their first calls waited for the sessions
			for i, at := 1, int64(0); i < processes; i++ {
				at += int64(103 * ms)
				r.records[i].End += at
				if i+1 < processes {
					r.records[i+1].Begin += at
				}
			}
			r.end.Duration = r.records[processes-1].End
		}
		got, err := Predict(r.open, []Link{{RTT: 10 * ms}}, Options{Constants: c})
		if err != nil {
			t.Fatal(err)
		}
		opening := 130 * ms // and a round trip of the call itself
		start, trips := 50*ms, time.Duration(processes*10)*ms
		if mode == trace.Local {
			start -= c.DriverLoad
		} else {
			trips = 0 // of the opening, too
		}
		within(t, string(mode), got[0].Wall, processes*opening+(processes-1)*start+trips, 10*ms)
	}
}
