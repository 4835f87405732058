package threads

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

// A rank is a model of one: the seconds of a step with each number of threads.
type rank struct {
	seconds []float64
	noise   *rand.Rand
	state   State
	spent   float64
	steps   int
}

// run takes steps until there were so many.
func (r *rank) run(steps int) {
	if r.state.Threads == 0 {
		r.state = Next(r.state)
	}
	for r.steps < steps {
		n := min(r.state.Steps, steps-r.steps)
		step := r.meanStep(n)
		r.steps, r.spent = r.steps+n, r.spent+float64(n)*step
		if n < r.state.Steps {
			return
		}
		r.state.Windows = append(r.state.Windows, Window{Threads: r.state.Threads, Seconds: step})
		r.state = Next(r.state)
	}
}

// meanStep returns the mean time of so many steps.
func (r *rank) meanStep(n int) float64 {
	step := r.seconds[r.state.Threads-1]
	if r.noise == nil {
		return step
	}
	sum := 0.0
	for range n {
		sum += step * (1 + 0.1*r.noise.Float64())
	}
	return sum / float64(n)
}

func newRank(seed uint64, seconds ...float64) *rank {
	return &rank{seconds: seconds, state: State{Most: len(seconds)}, noise: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // the same each time
}

// With measuring, all steps together take at most 3 % longer than with the best fixed number, once
// there were some hundreds, and the number is that one.
func TestNearlyAsFastAsTheBestFixedNumber(t *testing.T) {
	for _, seconds := range [][]float64{{1, 1.4}, {1.4, 1}, {3, 1.6, 1.2, 1}, {1, 1.1, 1.3, 2}, {1.3, 1, 1.2, 1.5}} {
		r := newRank(1, seconds...)
		r.run(3000)
		best := seconds[0]
		for _, s := range seconds {
			best = min(best, s)
		}
		mean := best * 1.05 * 3000 // of the noise
		if got := seconds[r.state.Threads-1]; got != best || r.spent > 1.03*mean {
			t.Errorf("%v: %d threads, %v s, want %v and at most %v s", seconds, r.state.Threads, r.spent, best, 1.03*mean)
		}
	}
}

// When steps take another time, all numbers are measured again.
func TestMeasuresAgainAfterAChange(t *testing.T) {
	r := newRank(1, 1, 1.5)
	r.run(1000)
	if r.state.Threads != 1 || !r.state.Holding {
		t.Fatalf("got %+v", r.state)
	}
	r.seconds = []float64{3, 2} // The batch has grown.
	r.run(3000)
	if r.state.Threads != 2 || !r.state.Holding {
		t.Errorf("got %+v", r.state)
	}
}

func TestSimilarTimesPreferFewerThreads(t *testing.T) {
	r := newRank(1, 1.005, 1)
	r.noise = nil
	r.run(200)
	if r.state.Threads != 1 || !strings.Contains(r.state.Describe(), "1 to compute") || !strings.Contains(r.state.Describe(), "2: 1000 ms a step") {
		t.Errorf("got %+v: %s", r.state, r.state.Describe())
	}
}

func TestOneProcessorNeedsNoMeasurement(t *testing.T) {
	if s := Next(State{Most: 1}); s.Threads != 1 || s.Steps != lastHold {
		t.Errorf("got %+v", s)
	}
}

func TestMalformedStates(t *testing.T) {
	for _, text := range []string{
		`{}`, `{"most":0}`, `{"most":2000}`, `{"most":2,"holding":true}`, `{"most":2,"steps":-1}`,
		`{"most":2,"windows":[{"threads":0,"seconds":1}]}`, `{"most":2,"windows":[{"threads":1,"seconds":-1}]}`, `[]`,
	} {
		if answer, _, err := NextJSON([]byte(text)); err == nil {
			t.Errorf("%s: %s", text, answer)
		}
	}
}

func FuzzNextJSON(f *testing.F) {
	f.Add([]byte(`{"most":4,"threads":2,"steps":4,"windows":[{"threads":2,"seconds":0.5}]}`))
	f.Add([]byte(`{"most":2,"threads":1,"steps":96,"holding":true,"expected":1,"windows":[{"threads":1,"seconds":0.5}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		answer, _, err := NextJSON(text)
		if err != nil {
			return
		}
		var s State
		if err := json.Unmarshal(answer, &s); err != nil || s.Threads < 1 || s.Steps < 1 || s.Threads > maxThreads {
			t.Fatalf("%s: %s, %v", text, answer, err)
		}
	})
}

func TestEnviron(t *testing.T) {
	for _, c := range []struct {
		text              string
		processors, ranks int
		threads, most     string
	}{{"", 8, 2, "4", ""}, {"auto", 8, 2, "4", "8"}, {"auto", 2, 4, "1", "2"}, {"auto", 8, 8, "1", "2"}, {"3", 8, 2, "3", ""}} {
		if err := Check(c.text); err != nil {
			t.Error(err)
		}
		if env := Environ(c.text, c.processors, c.ranks); env[variable] != c.threads || env[mostVariable] != c.most {
			t.Errorf("%+v: %v", c, env)
		}
	}
	for _, text := range []string{"0", "-1", "many", "1.5", "2000"} {
		if Check(text) == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}
