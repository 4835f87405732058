package main

import (
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// typicalLink is about as slow as the links of the sections after the predictions.
var typicalLink = netem.Link{RTT: 200 * time.Microsecond, BitsPerSecond: 200e6}

// expect predicts how long the program's runs will take, for the estimates of the sections.
func expect(b *bench, p *program) error {
	var links []overhead.Link
	for i := range b.links {
		links = append(links, emulated(b, b.links[i].nominal, &lateness{}))
	}
	links = append(links, emulated(b, typicalLink, &lateness{}))
	predicted, err := overhead.Predict(opener(p.remote), links, b.options())
	if err != nil {
		return err
	}
	for i := range b.links {
		p.expected = append(p.expected, predicted[i].Wall)
	}
	p.typical = predicted[len(b.links)].Wall
	return nil
}

// runs returns the estimate of a section that runs each program remotely and locally so many times.
func (b *bench) runs(remote, local int) func() time.Duration {
	return func() (all time.Duration) {
		for _, p := range b.cases {
			all += time.Duration(remote)*p.typical + time.Duration(local)*p.recorded
		}
		return all
	}
}

// estimate returns about how long the predictions of a program take: short runs are repeated once or
// twice, and so are the recordings between them.
func (p *program) estimate() (all time.Duration) {
	repeated := time.Duration(0)
	for _, wall := range p.expected {
		all += wall
		if wall < longRun {
			repeated += 3 * wall / 2
		}
	}
	recordings := (len(p.expected) + recordEvery - 1) / recordEvery
	if repeated > 0 {
		recordings *= 2
	}
	for range recordings {
		all += 2*p.recorded + p.expected[0]
	}
	return all + repeated + 2*time.Second
}

// firstProgram returns the estimate of the first program's predictions: the section itself observes
// the budget before each of the others.
func firstProgram(b *bench) time.Duration { return b.cases[0].estimate() }

// recordingRuns returns the estimate of the section that measures recordings.
func (b *bench) recordingRuns() (all time.Duration) {
	for _, p := range b.recorded() {
		all += p.expected[0] + p.recorded
	}
	return all * time.Duration(2*b.Rounds(recordingRounds, recordingRoundsQuick))
}
