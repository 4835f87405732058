package job

import (
	"regexp"
	"strconv"
	"time"

	"github.com/outboard-run/outboard/client"
)

// The patterns of progress that rank 0 may write in a line: "step 12/100 loss 0.25 samples 64",
// with or without "=" or ":" after the words.
var (
	stepPattern    = regexp.MustCompile(`(?i)\bstep[ =:]+(\d{1,12})(?:\s*(?:/|of)\s*(\d{1,12}))?`)
	lossPattern    = regexp.MustCompile(`(?i)\bloss[ =:]+([-+]?[0-9.]+(?:[eE][-+]?\d+)?)`)
	samplesPattern = regexp.MustCompile(`(?i)\bsamples[ =:]+(\d{1,12})`)
)

// A progressReader computes the progress of a job from the lines of rank 0.
type progressReader struct {
	firstStep int
	firstAt   time.Time
	last      client.JobProgress
}

// read updates the progress from a line, and reports whether the line states any.
func (r *progressReader) read(text string, now time.Time) bool {
	m := stepPattern.FindStringSubmatch(text)
	if m == nil {
		return false
	}
	step, _ := strconv.Atoi(m[1]) // digits
	steps, _ := strconv.Atoi(m[2])
	p := client.JobProgress{Step: step, Steps: steps, Loss: r.last.Loss}
	if l := lossPattern.FindStringSubmatch(text); l != nil {
		if v, err := strconv.ParseFloat(l[1], 64); err == nil {
			p.Loss = v
		}
	}
	if r.firstAt.IsZero() || step < r.firstStep {
		r.firstStep, r.firstAt = step, now
	}
	if took := now.Sub(r.firstAt).Seconds(); step > r.firstStep && took > 0 {
		perStep := took / float64(step-r.firstStep)
		if s := samplesPattern.FindStringSubmatch(text); s != nil {
			n, _ := strconv.ParseFloat(s[1], 64) // digits
			p.Samples = n / perStep
		}
		if steps > step {
			p.Left = time.Duration(perStep * float64(steps-step) * float64(time.Second)).Round(time.Second)
		}
	}
	r.last = p
	return true
}

// addLine stores a line of a rank.
func (a *activeJob) addLine(n *nodeRun, l *line) {
	now, attempt := time.Now().UTC(), 0
	a.changeOften(func(j *client.Job) bool {
		attempt = j.Attempt
		if l.Rank != 0 || !a.progress.read(l.Text, now) {
			return false
		}
		j.Prog = a.progress.last
		return true
	})
	a.lines.add(client.JobLine{Time: now, Attempt: attempt, Rank: l.Rank, Node: n.node, Stderr: l.Stderr, Text: l.Text})
}
