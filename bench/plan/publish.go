package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard/internal/plot"
)

// publish adds the table of all predictions to the report, and draws their chart.
func (b *bench) publish(results []*result) error {
	b.Report.Notes = append(b.Report.Notes, caseTable(results))
	if b.Out == "" {
		return nil
	}
	if err := os.MkdirAll(b.Out, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(b.Out, "plan.svg"))
	if err != nil {
		return err
	}
	if err := plot.SVG(f, scatter(results)); err != nil {
		_ = f.Close() // the first error counts
		return err
	}
	return f.Close()
}

// caseTable returns the table of all predictions.
func caseTable(results []*result) string {
	var text strings.Builder
	text.WriteString("| program | link | measured, s | from a remote trace | error | from a local trace | error | interval |\n|---|---|---|---|---|---|---|---|\n")
	for _, r := range results {
		fmt.Fprintf(&text, "| %s | %s | %.3f | %.3f | %+.1f %% | %.3f | %+.1f %% | %.3f to %.3f |\n", r.program.Name, r.link, r.wall(),
			r.remote.Wall.Seconds(), r.error(&r.remote), r.local.Wall.Seconds(), r.error(&r.local), r.remote.Low.Seconds(), r.remote.High.Seconds())
	}
	return text.String()
}

// scatter returns a chart of predicted over measured times.
func scatter(results []*result) *plot.Chart {
	axis := func(title string) plot.Axis {
		return plot.Axis{Title: title, Log: true, Format: func(v float64) string { return fmt.Sprintf("%.3g s", v) }}
	}
	c := &plot.Chart{
		Text: plot.Text{
			Title:       "Predicted over measured wall time",
			Description: "Each point is a program over one emulated link, predicted from a trace of a remote run; a bar is its interval. On the line prediction and measurement agree.",
		},
		X: axis("measured"), Y: axis("predicted"), Diagonal: true,
	}
	index := map[string]int{}
	for _, r := range results {
		i, ok := index[r.program.Name]
		if !ok {
			i = len(c.Series)
			index[r.program.Name] = i
			c.Series = append(c.Series, plot.Series{Name: r.program.Name, Scatter: true})
		}
		c.Series[i].Points = append(c.Series[i].Points, plot.Point{
			X: r.wall(), Y: r.remote.Wall.Seconds(), Low: r.remote.Low.Seconds(), High: r.remote.High.Seconds(), Name: r.program.Name + ", " + r.link.String(),
		})
	}
	return c
}
