package paired

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Part is the result of one section. Parts of one report can come from runs at different times.
type Part struct {
	Section string    `json:"section"`
	Commit  string    `json:"commit"`
	Date    time.Time `json:"date"`
	// Seconds is how long the section took.
	Seconds float64 `json:"seconds"`
	// Missing states what the run had no time for.
	Missing string   `json:"missing,omitempty"`
	Notes   []string `json:"notes,omitempty"`
	Timings []Timing `json:"timings,omitempty"`

	rows []Row
}

// A Timing is one run of a program, and by how much the machine disturbed it.
type Timing struct {
	What    string  `json:"what"`
	Seconds float64 `json:"seconds"`
	// Stolen and Foreign are shares of the processors in %: the time that the host of the virtual
	// machine withheld, and the time that processes outside of the bench used.
	Stolen  float64 `json:"stolen"`
	Foreign float64 `json:"foreign"`
	// Disturbed is whether the shares exceed the bench's bound, Repeated whether a repetition
	// replaces the run.
	Disturbed bool `json:"disturbed,omitempty"`
	Repeated  bool `json:"repeated,omitempty"`
}

// Timing adds a run to the section that is being measured.
func (r *Run) Timing(t Timing) { r.timings = append(r.timings, t) }

// Missing states what the section that is being measured has no time for.
func (r *Run) Missing(what string) { r.missing = append(r.missing, what) }

// Left returns how much of the run's time is left, for ever if it has no limit.
func (r *Run) Left() time.Duration {
	if r.Budget == 0 {
		return 1<<63 - 1
	}
	return r.Budget - time.Since(r.began)
}

// Merge has the report keep the results of sections that are not measured, from the report in Out.
// Begin must have been called.
func (r *Run) Merge() error {
	r.merge = true
	text, err := os.ReadFile(filepath.Join(r.Out, r.Report.Plane+".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old Report
	if err == nil {
		err = json.Unmarshal(text, &old)
	}
	if err != nil {
		return err
	}
	if old.Quick != r.Report.Quick {
		if r.Only != "" {
			r.Out = "" // a section of a quick run does not replace a whole report
		}
		return nil
	}
	for _, p := range old.Parts {
		for i := range old.Rows {
			if old.Rows[i].Section == p.Section {
				p.rows = append(p.rows, old.Rows[i])
			}
		}
		r.Report.Parts = append(r.Report.Parts, p)
	}
	return nil
}

// measurePart measures a section as a part of the report. After an error the report keeps the
// section's earlier result.
func (r *Run) measurePart(measure func() error) error {
	head := r.Report.Notes
	r.Report.Rows, r.Report.Notes, r.timings, r.missing = nil, nil, nil, nil
	began := time.Now()
	err := measure()
	if err == nil {
		part := Part{
			Section: r.section, Commit: r.Report.Commit, Date: began.UTC(), Seconds: time.Since(began).Seconds(),
			Missing: strings.Join(r.missing, "; "), Notes: r.Report.Notes, Timings: r.timings, rows: r.Report.Rows,
		}
		for i := range part.rows {
			part.rows[i].Section = r.section
		}
		r.Report.put(part)
	}
	r.Report.Notes = head
	return err
}

// put replaces the result of a section, or adds it.
func (r *Report) put(p Part) {
	if i := slices.IndexFunc(r.Parts, func(old Part) bool { return old.Section == p.Section }); i >= 0 {
		r.Parts[i] = p
		return
	}
	r.Parts = append(r.Parts, p)
}

// skip states that the run had no time for a section; an earlier result stays.
func (r *Run) skip(section string) {
	const missing = "the last run had no time for it"
	if i := slices.IndexFunc(r.Report.Parts, func(p Part) bool { return p.Section == section }); i >= 0 {
		r.Report.Parts[i].Missing = missing
		return
	}
	r.Report.Parts = append(r.Report.Parts, Part{Section: section, Missing: missing})
}

// arrange sorts the parts into the order of the sections, drops those that no section has, and sets
// the rows of the report to those of its parts.
func (r *Report) arrange(sections []Section) {
	index := func(name string) int {
		return slices.IndexFunc(sections, func(s Section) bool { return s.Name == name })
	}
	r.Parts = slices.DeleteFunc(r.Parts, func(p Part) bool { return index(p.Section) < 0 })
	slices.SortStableFunc(r.Parts, func(a, b Part) int { return index(a.Section) - index(b.Section) })
	r.Rows = nil
	for i := range r.Parts {
		r.Rows = append(r.Rows, r.Parts[i].rows...)
	}
}

// writeParts writes when each part was measured and how disturbed it was, and the notes of all parts.
func writeParts(w io.Writer, parts []Part) {
	fmt.Fprint(w, "\n| section | measured | commit | took, s | runs | repeated | disturbed | |\n|---|---|---|---|---|---|---|---|\n")
	for i := range parts {
		p := &parts[i]
		when := "never"
		if !p.Date.IsZero() {
			when = p.Date.Format("2006-01-02 15:04")
		}
		runs, repeated, disturbed := Count(p.Timings)
		fmt.Fprintf(w, "| %s | %s | %s | %.0f | %d | %d | %d | %s |\n", p.Section, when, p.Commit, p.Seconds, runs, repeated, disturbed, p.Missing)
	}
	for i := range parts {
		for _, note := range parts[i].Notes {
			fmt.Fprintf(w, "\n%s\n", note)
		}
	}
}

// Count returns the number of runs that count, of runs that a repetition replaced, and of runs that
// count though they were disturbed.
func Count(timings []Timing) (runs, repeated, disturbed int) {
	for i := range timings {
		switch t := &timings[i]; {
		case t.Repeated:
			repeated++
		case t.Disturbed:
			disturbed++
			runs++
		default:
			runs++
		}
	}
	return runs, repeated, disturbed
}
