package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/outboard-run/outboard/internal/plot"
	training "github.com/outboard-run/outboard/internal/train/plan"
)

// frontierPoints is the number of plans between the fastest and the cheapest one in a plot.
const frontierPoints = 12

// plotPlans draws the best plans between the fastest and the cheapest one, beside those of p.
func plotPlans(ctx context.Context, path string, j *training.Job, p *trainPlan) error {
	best, err := frontier(ctx, j)
	if err != nil {
		return err
	}
	chart := &plot.Chart{
		Text: plot.Text{
			Title:       "Time and price of a training step",
			Description: "The line has the cheapest plan for each time. Plans below and left of it do not exist.",
		},
		X:      plot.Axis{Title: "time of a step", Format: secondsText},
		Y:      plot.Axis{Title: "price of a step", Format: func(v float64) string { return fmt.Sprintf("%.3g", v) }},
		Series: []plot.Series{{Name: "best plans", Points: best}},
	}
	for _, l := range p.Plans {
		if l.Plan != nil {
			chart.Series = append(chart.Series, plot.Series{Name: l.Name, Scatter: true, Points: []plot.Point{planPoint(l.Plan)}})
		}
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	write := func(w io.Writer) error { return plot.SVG(w, chart) }
	if strings.HasSuffix(path, ".html") {
		write = func(w io.Writer) error { return plot.HTML(w, "Plans of a training job", chart) }
	}
	if err := write(f); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// frontier returns the cheapest plans for times from that of the fastest plan to that of the
// cheapest one.
func frontier(ctx context.Context, j *training.Job) ([]plot.Point, error) {
	fastest, err := j.Best(ctx, training.Objective{})
	if err != nil {
		return nil, err
	}
	cheapest, err := j.Best(ctx, training.Objective{Cheapest: true})
	if err != nil {
		return nil, err
	}
	var points []plot.Point
	for i := range frontierPoints {
		// The limit is rounded up, so that the fastest plan keeps its own time.
		limit := fastest.Time + (cheapest.Time-fastest.Time)*float64(i)/(frontierPoints-1)
		p, err := j.Best(ctx, training.Objective{Cheapest: true, MaxTime: limit * (1 + 1e-9)})
		if errors.Is(err, training.ErrNoPlan) || errors.Is(err, training.ErrUndecided) {
			continue // the search was too large to find a plan
		}
		if err != nil {
			return nil, err
		}
		points = append(points, planPoint(&p))
	}
	return points, nil
}

func planPoint(p *training.Plan) plot.Point {
	return plot.Point{
		X: p.Time, Y: p.Cost,
		Name: fmt.Sprintf("%d stages, %d replicas, %d micro-batches of %d: %s, %.4g", len(p.Stages), p.Replicas, p.Steps, p.MicroBatch, secondsText(p.Time), p.Cost),
	}
}
