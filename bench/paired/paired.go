// Package paired measures two implementations in turn, A B A B, and reports the ratio of their
// medians.
//
// Absolute times on a small shared machine mean little; the ratio of two measurements within the
// same minute is reproducible.
package paired

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

// A Row is one measurement.
type Row struct {
	Name string `json:"name"`
	Unit string `json:"unit"`
	// Value and Reference are medians.
	Value         float64 `json:"value"`
	Reference     float64 `json:"reference"`
	ReferenceName string  `json:"reference_name"`
	// Ratio is Value / Reference, 0 without a reference.
	Ratio  float64 `json:"ratio"`
	Wanted string  `json:"wanted"`
	Holds  bool    `json:"holds"`
	Runs   int     `json:"runs"`
	// Spread is the least and the greatest value.
	Spread [2]float64 `json:"spread"`
	// Reason explains why a row misses its goal, if it is known.
	Reason string `json:"reason,omitempty"`
	// Section is the section that measured the row, in a report of parts.
	Section string `json:"section,omitempty"`
	// Disturbed counts the runs that the machine's other work disturbed, if the bench observes it.
	Disturbed int `json:"disturbed,omitempty"`
}

// A Goal is the target of a row.
type Goal struct {
	// Max and Min bound the value, MaxRatio and MinRatio the ratio; 0 is no bound.
	Max, Min, MaxRatio, MinRatio float64
}

// String returns the goal as the table shows it.
func (g Goal) String() string {
	var parts []string
	for _, p := range []struct {
		form  string
		bound float64
	}{{"≤ %g", g.Max}, {"≥ %g", g.Min}, {"ratio ≤ %g", g.MaxRatio}, {"ratio ≥ %g", g.MinRatio}} {
		if p.bound != 0 {
			parts = append(parts, fmt.Sprintf(p.form, p.bound))
		}
	}
	return strings.Join(parts, ", ")
}

func (g Goal) holds(r Row) bool {
	return (g.Max == 0 || r.Value <= g.Max) && (g.Min == 0 || r.Value >= g.Min) &&
		(g.MaxRatio == 0 || r.Ratio <= g.MaxRatio) && (g.MinRatio == 0 || r.Ratio >= g.MinRatio) && !math.IsNaN(r.Value)
}

// NewRow returns a row with the values of two measurements that took turns.
func NewRow(name, unit, referenceName string, values, references []float64, goal Goal) Row {
	r := Row{
		Name: name, Unit: unit, ReferenceName: referenceName, Wanted: goal.String(), Runs: len(values),
		Value: Median(values), Reference: Median(references), Spread: spread(values),
	}
	if r.Reference != 0 {
		r.Ratio = r.Value / r.Reference
	}
	r.Holds = goal.holds(r)
	return r
}

// Median returns the middle of values, 0 if there are none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(values))
	if n := len(s); n%2 == 0 {
		return (s[n/2-1] + s[n/2]) / 2
	}
	return s[len(s)/2]
}

func spread(values []float64) [2]float64 {
	if len(values) == 0 {
		return [2]float64{}
	}
	return [2]float64{slices.Min(values), slices.Max(values)}
}

// A Report contains all rows of a plane, and where and when they were measured.
type Report struct {
	Plane   string    `json:"plane"`
	Machine string    `json:"machine"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	Quick   bool      `json:"quick"`
	Rows    []Row     `json:"rows"`
	// Notes are paragraphs under the table.
	Notes []string `json:"notes,omitempty"`
	// Parts are the results of the sections, in a report that several runs write.
	Parts []Part `json:"parts,omitempty"`
}

// Machine describes this machine for a report.
func Machine() string {
	model := "unknown processor"
	if raw, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for l := range strings.SplitSeq(string(raw), "\n") {
			if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("%d cores of %s, Linux %s, %s", runtime.NumCPU(), model, strings.TrimSpace(string(kernel)), runtime.Version())
}

// Write writes PLANE.json and PLANE.md into dir.
func (r Report) Write(dir string) error {
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, r.Plane+".json"), append(raw, '\n'), 0o644); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(dir, r.Plane+".md"))
	if err != nil {
		return err
	}
	r.Markdown(f)
	return f.Close()
}

// Markdown writes the report as Markdown.
func (r Report) Markdown(w io.Writer) {
	fmt.Fprintf(w, "# %s\n\n%s; commit %s; %s.", r.Plane, r.Machine, r.Commit, r.Date.Format(time.DateOnly))
	if r.Quick {
		fmt.Fprint(w, " A quick run: its intervals are wide.")
	}
	fmt.Fprint(w, "\nMedians of runs taken in turn with the reference; only ratios within one run mean something.\n\n")
	WriteRows(w, r.Rows)
	for _, note := range r.Notes {
		fmt.Fprintf(w, "\n%s\n", note)
	}
	if len(r.Parts) > 0 {
		writeParts(w, r.Parts)
	}
}

// WriteRows writes rows as a table, followed by their reasons.
func WriteRows(w io.Writer, rows []Row) {
	fmt.Fprint(w, "| what | unit | value | spread | reference | | ratio | wanted | holds | runs |\n|---|---|---|---|---|---|---|---|---|---|\n")
	for i := range rows {
		row := &rows[i]
		holds := "yes"
		if !row.Holds {
			holds = "**no**"
		}
		ratio, reference := "", ""
		if row.Reference != 0 {
			ratio, reference = Number(row.Ratio), Number(row.Reference)
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s to %s | %s | %s | %s | %s | %s | %s |\n", row.Name, row.Unit, Number(row.Value),
			Number(row.Spread[0]), Number(row.Spread[1]), reference, row.ReferenceName, ratio, row.Wanted, holds, row.runs())
	}
	for i := range rows {
		row := &rows[i]
		if row.Reason != "" {
			fmt.Fprintf(w, "\n**%s**: %s\n", row.Name, row.Reason)
		}
	}
}

// runs returns the number of runs, and how many of them were disturbed.
func (r *Row) runs() string {
	if r.Disturbed == 0 {
		return fmt.Sprint(r.Runs)
	}
	return fmt.Sprintf("%d (%d disturbed)", r.Runs, r.Disturbed)
}

// Number formats v with three significant digits.
func Number(v float64) string {
	switch a := math.Abs(v); {
	case a == 0:
		return "0"
	case a >= 100:
		return fmt.Sprintf("%.0f", v)
	case a >= 10:
		return fmt.Sprintf("%.1f", v)
	case a < 0.05:
		return fmt.Sprintf("%.2g", v)
	}
	return fmt.Sprintf("%.2f", v)
}
