// Package threads chooses how many threads a rank computes with, from the measured times of its
// steps: the processors that it leaves free serve communication and loading (LIBRA).
//
// It is pure. A rank measures a few steps with each number of threads in turn, then keeps the best
// number, and measures all of them again when the time of its steps has changed.
// python/outboard/threads.py executes.
package threads

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

const (
	// maxThreads bounds the threads of a rank, maxWindows the measurements of a round.
	maxThreads = 1024
	maxWindows = 4096
	// turns is the number of measurements of each number of threads in a round, for windowSteps
	// steps each; the rank leaves out the first step of each.
	turns       = 3
	windowSteps = 4
	// firstHold is the number of steps for which the best number is kept before it is compared with
	// its measurement, for the first time; then twice as many each time, up to lastHold.
	firstHold, lastHold = 96, 3072
	// change is the relative difference from the measured time at which a step begins a new round.
	change = 0.2
	// similar is the part of the best time within which fewer threads are preferred.
	similar = 0.01
)

// A State is the state of a rank's choice: the rank sends it, with its measurements since then, and
// receives the next one.
type State struct {
	// Most is the largest number of threads to try.
	Most int `json:"most"`
	// Threads is the number to compute with for the next Steps steps, after which the rank asks
	// again.
	Threads int `json:"threads"`
	Steps   int `json:"steps"`
	// Holding says that Threads was chosen; Expected is the time of a step for which it was chosen,
	// in seconds.
	Holding  bool    `json:"holding"`
	Expected float64 `json:"expected"`
	// Windows are the measurements of this round. The rank adds one of the last Steps steps.
	Windows []Window `json:"windows"`
}

// A Window is a measurement of some steps.
type Window struct {
	Threads int `json:"threads"`
	// Seconds is the median time of a step, Communication the time of a step in which collective
	// calls run.
	Seconds       float64 `json:"seconds"`
	Communication float64 `json:"communication"`
}

// Check returns an error if a state can't be continued.
func (s *State) Check() error {
	if s.Most < 1 || s.Most > maxThreads || s.Steps < 0 || s.Steps > lastHold || len(s.Windows) > maxWindows {
		return fmt.Errorf("%d threads, %d steps, %d measurements", s.Most, s.Steps, len(s.Windows))
	}
	if s.Holding && (len(s.Windows) == 0 || s.Threads < 1 || s.Threads > s.Most) {
		return errors.New("a choice of no measured number of threads")
	}
	for _, w := range s.Windows {
		if w.Threads < 1 || w.Threads > maxThreads || !(w.Seconds >= 0) || math.IsInf(w.Seconds, 0) {
			return fmt.Errorf("%d threads took %v s", w.Threads, w.Seconds)
		}
	}
	return nil
}

// Next returns the state that follows s, with the rank's next threads and steps.
func Next(s State) State {
	candidates := candidates(s.Most)
	if s.Holding {
		last := s.Windows[len(s.Windows)-1]
		if math.Abs(last.Seconds-s.Expected) <= change*s.Expected {
			s.Steps, s.Windows = min(2*max(s.Steps, 1), lastHold), s.Windows[:len(s.Windows)-1]
			return s
		}
		s.Holding, s.Windows = false, nil
	}
	s.Steps = windowSteps
	if len(candidates) == 1 {
		return State{Most: s.Most, Threads: candidates[0], Steps: lastHold}
	}
	if len(s.Windows) < turns*len(candidates) {
		// Back and forth, so that a drift over time favours none.
		turn, at := len(s.Windows)/len(candidates), len(s.Windows)%len(candidates)
		if turn%2 == 1 {
			at = len(candidates) - 1 - at
		}
		s.Threads = candidates[at]
		return s
	}
	best, seconds := choose(s.Windows)
	s.Holding, s.Threads, s.Expected, s.Steps = true, best, seconds, firstHold
	return s
}

// candidates returns the numbers of threads to measure: all up to 4, and then the powers of two and
// the greatest two.
func candidates(most int) (list []int) {
	for n := 1; n <= most; n++ {
		if n <= 4 || n&(n-1) == 0 || n >= most-1 {
			list = append(list, n)
		}
	}
	return list
}

// choose returns the number of threads with the least median time, or fewer threads that take
// hardly longer, and its time.
func choose(windows []Window) (threads int, seconds float64) {
	times := medians(windows)
	least := slices.MinFunc(times, func(a, b Window) int { return cmp.Compare(a.Seconds, b.Seconds) }).Seconds
	for _, w := range times {
		if w.Seconds <= least*(1+similar) {
			return w.Threads, w.Seconds
		}
	}
	return times[0].Threads, times[0].Seconds // Not reached: the least one is among them.
}

// medians returns the median of each number of threads, the fewest first.
func medians(windows []Window) (list []Window) {
	by := make(map[int][]Window)
	for _, w := range windows {
		by[w.Threads] = append(by[w.Threads], w)
	}
	for _, of := range by {
		slices.SortFunc(of, func(a, b Window) int { return cmp.Compare(a.Seconds, b.Seconds) })
		list = append(list, of[len(of)/2])
	}
	slices.SortFunc(list, func(a, b Window) int { return a.Threads - b.Threads })
	return list
}

// Describe describes the choice and its measured times in a line.
func (s *State) Describe() string {
	if len(s.Windows) == 0 {
		return fmt.Sprintf("%d to compute; to be measured are 1 to %d", s.Threads, s.Most)
	}
	var times []string
	for _, w := range medians(s.Windows) {
		times = append(times, fmt.Sprintf("%d: %.4g ms a step, %.4g ms of it with communication under way", w.Threads, 1e3*w.Seconds, 1e3*w.Communication))
	}
	what := "measuring"
	if s.Holding {
		what = fmt.Sprintf("%d to compute, for the next %d steps", s.Threads, s.Steps)
	}
	return what + " (" + strings.Join(times, "; ") + ")"
}

// NextJSON is Next for a state in the form in which a rank sends it. It also returns a line for
// people.
func NextJSON(text []byte) (answer []byte, description string, err error) {
	var s State
	if err := json.Unmarshal(text, &s); err != nil {
		return nil, "", err
	}
	if err := s.Check(); err != nil {
		return nil, "", fmt.Errorf("malformed measurements: %w", err)
	}
	next := Next(s)
	answer, err = json.Marshal(next)
	return answer, next.Describe(), err
}
