package paired

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// measureParts measures sections into a report in dir, and returns it.
func measureParts(t *testing.T, r *Run, sections []Section) (Report, error) {
	t.Helper()
	end, err := r.Begin(t.Context(), "test", "a note")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	if err := r.Merge(); err != nil {
		t.Fatal(err)
	}
	err = r.Measure(t.Context(), sections)
	return written(t, r), err
}

// valued returns a section with one row, one note and two runs.
func (r *Run) valued(name string, value float64) Section {
	return Section{Name: name, Run: func(context.Context) error {
		r.Row(NewRow("row of "+name, "%", "", []float64{value}, nil, Goal{}))
		r.Report.Notes = append(r.Report.Notes, "note of "+name)
		r.Timing(Timing{What: "a run", Seconds: 1, Stolen: 3, Disturbed: true, Repeated: true})
		r.Timing(Timing{What: "a run", Seconds: 1, Foreign: 3, Disturbed: true})
		return nil
	}}
}

// values returns the rows' values.
func (r *Report) values() (values []float64) {
	for i := range r.Rows {
		values = append(values, r.Rows[i].Value)
	}
	return values
}

// A section that is measured alone replaces its own result, in the order of the sections, and leaves
// those of the others.
func TestPartsAreMerged(t *testing.T) {
	dir := t.TempDir()
	for _, c := range []struct {
		only  string
		value float64
		want  []float64
	}{{"b", 2, []float64{2}}, {"a", 1, []float64{1, 2}}, {"b", 3, []float64{1, 3}}, {"", 4, []float64{4, 4}}} {
		r := &Run{Out: dir, Only: c.only}
		got, err := measureParts(t, r, []Section{r.valued("a", c.value), r.valued("b", c.value)})
		if err != nil {
			t.Fatal(err)
		}
		if values := got.values(); len(values) != len(c.want) || values[0] != c.want[0] || values[len(values)-1] != c.want[len(values)-1] {
			t.Errorf("after %q: %v, want %v", c.only, values, c.want)
		}
		if len(got.Notes) != 1 || len(got.Parts) != len(c.want) || len(got.Parts[0].Notes) != 1 || len(got.Parts[0].Timings) != 2 {
			t.Errorf("after %q: %+v", c.only, got)
		}
	}
}

// The result of a section that fails is the earlier one.
func TestFailedPartKeepsItsEarlierResult(t *testing.T) {
	dir, broken := t.TempDir(), errors.New("broken")
	r := &Run{Out: dir}
	if _, err := measureParts(t, r, []Section{r.valued("a", 1)}); err != nil {
		t.Fatal(err)
	}
	r = &Run{Out: dir}
	got, err := measureParts(t, r, []Section{{Name: "a", Run: func(ctx context.Context) error {
		return errors.Join(r.valued("a", 2).Run(ctx), broken)
	}}})
	if values := got.values(); !errors.Is(err, broken) || len(values) != 1 || values[0] != 1 {
		t.Errorf("%v, %v", values, err)
	}
}

// A section that does not fit into the budget keeps its earlier result, and the report says so.
func TestBudget(t *testing.T) {
	dir := t.TempDir()
	r := &Run{Out: dir}
	if _, err := measureParts(t, r, []Section{r.valued("long", 1)}); err != nil {
		t.Fatal(err)
	}
	r = &Run{Out: dir, Budget: time.Hour}
	long, never := r.valued("long", 2), r.valued("never measured", 2)
	long.Estimate = func() time.Duration { return 2 * time.Hour }
	never.Estimate = long.Estimate
	short := r.valued("short", 2)
	short.Estimate = func() time.Duration { return time.Second }
	got, err := measureParts(t, r, []Section{long, short, never})
	if values := got.values(); err != nil || len(values) != 2 || values[0] != 1 || values[1] != 2 {
		t.Errorf("%v, %v", values, err)
	}
	for i, missing := range []bool{true, false, true} {
		if p := got.Parts[i]; (p.Missing != "") != missing {
			t.Errorf("%+v", p)
		}
	}
	var out bytes.Buffer
	got.Markdown(&out)
	for _, want := range []string{"| never measured | never |", "| 1 | 1 | 1 | the last run had no time for it |", "\nnote of short\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, &out)
		}
	}
}

// A quick run replaces the report of a full run, and is not mixed with it.
func TestQuickPartsAreNotMixed(t *testing.T) {
	dir := t.TempDir()
	r := &Run{Out: dir}
	if _, err := measureParts(t, r, []Section{r.valued("a", 1)}); err != nil {
		t.Fatal(err)
	}
	r = &Run{Out: dir, Quick: true, Only: "b"}
	if _, err := r.Begin(t.Context(), "test"); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = os.RemoveAll(r.Dir) }()
	if err := errors.Join(r.Merge(), r.Measure(t.Context(), []Section{r.valued("b", 2)})); err != nil {
		t.Fatal(err)
	}
	r.Out = dir
	if got := written(t, r); got.Quick || len(got.Parts) != 1 || got.Parts[0].Section != "a" {
		t.Errorf("a section of a quick run replaced a report: %+v", got)
	}
	r = &Run{Out: dir, Quick: true}
	if got, err := measureParts(t, r, []Section{r.valued("b", 2)}); err != nil || len(got.Parts) != 1 {
		t.Errorf("%+v, %v", got.Parts, err)
	}
}

func TestDisturbedRunsOfARow(t *testing.T) {
	row := NewRow("a", "s", "", []float64{1, 2, 3}, nil, Goal{})
	row.Disturbed = 1
	var out bytes.Buffer
	WriteRows(&out, []Row{row})
	if !strings.Contains(out.String(), "| 3 (1 disturbed) |") {
		t.Error(out.String())
	}
}
