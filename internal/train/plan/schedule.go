package plan

import "math"

// maxActions bounds the passes of micro-batches whose schedule is computed.
const maxActions = 1 << 20

// scheduled returns the time of a step by the order in which stages pass micro-batches, with sends
// that overlap computation and follow one another on each link. The closed form is that of GPipe,
// which with stages of different length exceeds the time of 1F1B: a stage whose neighbour is late
// computes another micro-batch meanwhile.
func (t *tables) scheduled(stages []Stage, closedForm float64) float64 {
	n := len(stages)
	if t.job.Schedule != OneForwardOneBackward || n == 1 || 2*n*t.div.steps > maxActions {
		return closedForm
	}
	s := &schedule{micros: t.div.steps, stages: make([]scheduledStage, n)}
	for i, st := range stages {
		stage := &s.stages[i]
		stage.forward, stage.backward = t.forward(st.First, st.End, st.Device), t.backward(st.First, st.End, st.Device)
		stage.sync = t.sync(st.First, st.End, st.Device)
		if i > 0 {
			stage.receive = t.send(st.First, stages[i-1].Device, st.Device)
		}
		for _, arrivals := range []*[]float64{&stage.input, &stage.gradient} {
			*arrivals = make([]float64, s.micros)
			for k := range *arrivals {
				(*arrivals)[k] = math.NaN() // It has not been sent.
			}
		}
	}
	return s.run()
}

// A schedule is the execution of one step, in seconds from its beginning.
type schedule struct {
	micros int
	stages []scheduledStage
}

// A scheduledStage passes micro-batches forward and backward, in the order of 1F1B.
type scheduledStage struct {
	// receive is the time of sending it an input from the previous stage, or sending that stage a
	// gradient.
	forward, backward, receive, sync float64
	// input and gradient are the arrival times of each micro-batch's input and gradient, NaN until
	// they are known; inputLink and gradientLink are the times at which their links are free.
	input, gradient         []float64
	inputLink, gradientLink float64
	done                    int // actions
	now                     float64
}

// run executes the actions of all stages and returns when the last one ends, its reduction
// included.
func (s *schedule) run() (end float64) {
	for progress := true; progress; {
		progress = false
		for i := range s.stages {
			for s.stages[i].done < 2*s.micros && s.act(i) {
				progress = true
			}
		}
	}
	for i := range s.stages {
		end = max(end, s.stages[i].now+s.stages[i].sync)
	}
	return end
}

// action returns the next action of a stage: the number of a micro-batch and its direction. A stage
// passes as many micro-batches forward as there are stages behind it, and then alternates.
func (s *schedule) action(stage int) (micro int, forward bool) {
	ahead := min(s.micros, len(s.stages)-stage-1)
	done := s.stages[stage].done
	alternate := done - ahead
	switch {
	case alternate < 0:
		return done, true
	case alternate >= 2*(s.micros-ahead):
		return done - s.micros, false
	case alternate%2 == 0:
		return ahead + alternate/2, true
	default:
		return alternate / 2, false
	}
}

// act executes the next action of a stage, and returns false if its input or gradient has not been
// sent.
func (s *schedule) act(i int) bool {
	stage := &s.stages[i]
	micro, forward := s.action(i)
	if forward {
		if i > 0 && math.IsNaN(stage.input[micro]) {
			return false
		}
		if i > 0 {
			stage.now = max(stage.now, stage.input[micro])
		}
		stage.now += stage.forward
		if i+1 < len(s.stages) {
			next := &s.stages[i+1]
			next.inputLink = max(next.inputLink, stage.now) + next.receive
			next.input[micro] = next.inputLink
		}
	} else {
		if i+1 < len(s.stages) {
			if math.IsNaN(stage.gradient[micro]) {
				return false
			}
			stage.now = max(stage.now, stage.gradient[micro])
		}
		stage.now += stage.backward
		if i > 0 {
			before := &s.stages[i-1]
			before.gradientLink = max(before.gradientLink, stage.now) + stage.receive
			before.gradient[micro] = before.gradientLink
		}
	}
	stage.done++
	return true
}
