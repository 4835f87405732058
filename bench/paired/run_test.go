package paired

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestMeasure has each section's rows in the report as soon as it ends, and goes on
// after one that fails.
func TestMeasure(t *testing.T) {
	printed := recordCommands(t, "go")
	r := &Run{Out: filepath.Join(t.TempDir(), "out"), Profiles: filepath.Join(t.TempDir(), "profiles")}
	end, err := r.Begin(t.Context(), "test", "a note")
	if err != nil {
		t.Fatal(err)
	}
	one := func(context.Context) error { r.None("one", ""); return nil }
	broken := errors.New("broken")
	err = r.Measure(t.Context(), []Section{
		{Name: "a", Run: one},
		{Name: "b", Run: func(context.Context) error {
			if got := len(written(t, r).Rows); got != 1 {
				t.Errorf("the report has %d rows after the first section", got)
			}
			return broken
		}},
		{Name: "c", Run: func(ctx context.Context) error {
			stop, err := WriteProfile(r.Profile("here"))
			return errors.Join(err, stop(), one(ctx))
		}},
	})
	if got := written(t, r); !errors.Is(err, broken) || len(got.Rows) != 2 || got.Plane != "test" || got.Notes[0] != "a note" {
		t.Errorf("got %v and %+v", err, got)
	}
	profile := filepath.Join(r.Profiles, "c-0-here.pprof")
	if _, err := os.Stat(profile); err != nil {
		t.Error(err)
	}
	if got, want := printed(), "tool pprof -top -nodecount=30 "+profile+"\n"; got != want {
		t.Errorf("the commands were %q, want %q", got, want)
	}
	if err := end(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.Dir); !os.IsNotExist(err) {
		t.Errorf("the run's folder is still there: %v", err)
	}
}

// recordCommands has a script take the place of a program, since Go would build its tools first.
// commands returns the arguments of all its calls, one call a line.
func recordCommands(t *testing.T, program string) (commands func() string) {
	t.Helper()
	dir := t.TempDir()
	record := filepath.Join(dir, "record")
	script := "#!/bin/sh\necho \"$@\" >>" + record + "\n"
	if err := os.WriteFile(filepath.Join(dir, program), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	return func() string {
		text, err := os.ReadFile(record)
		if err != nil {
			t.Error(err)
		}
		return string(text)
	}
}

func written(t *testing.T, r *Run) (report Report) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.Out, "test.json"))
	if err == nil {
		err = json.Unmarshal(text, &report)
	}
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// TestOnly measures a part, which is no report.
func TestOnly(t *testing.T) {
	r := &Run{Out: t.TempDir(), Only: "b"}
	var ran string
	section := func(name string) Section {
		return Section{Name: name, Run: func(context.Context) error { ran += name; return nil }, Setup: name == "setup"}
	}
	if err := r.Measure(t.Context(), []Section{section("a"), section("ab"), section("b")}); err != nil || ran != "abb" {
		t.Errorf("%q ran, %v", ran, err)
	}
	if files, err := os.ReadDir(r.Out); err != nil || len(files) != 0 {
		t.Errorf("wrote %v, %v", files, err)
	}
	ran = ""
	if err := r.Measure(t.Context(), []Section{section("setup"), section("a"), section("b")}); err != nil || ran != "setupb" {
		t.Errorf("%q ran with a section that prepares others, %v", ran, err)
	}
	ran, r.Only = "", "^(a|b)$"
	if err := r.Measure(t.Context(), []Section{section("a"), section("ab"), section("b")}); err != nil || ran != "ab" {
		t.Errorf("%q ran of the sections that are named a or b, %v", ran, err)
	}
	r.Only = "x"
	if err := r.Measure(t.Context(), []Section{section("abc"), section("d")}); err == nil || !strings.Contains(err.Error(), "abc, d") {
		t.Errorf("got %v for a section that there is not", err)
	}
}

func TestNone(t *testing.T) {
	var r Run
	r.None("lost", "calls", 0, 0)
	r.None("wrong", "calls", 0, 2, 1)
	if rows := r.Report.Rows; !rows[0].Holds || rows[1].Holds || rows[1].Value != 3 {
		t.Errorf("got %+v", r.Report.Rows)
	}
}

func TestQuick(t *testing.T) {
	for quick, want := range map[bool]int{true: 2, false: 7} {
		r := Run{Quick: quick}
		if got := r.Rounds(7, 2); got != want {
			t.Errorf("got %d rounds", got)
		}
		if got := r.Turn(7*time.Second, 2*time.Second); got != time.Duration(want)*time.Second {
			t.Errorf("got turns of %v", got)
		}
	}
}

func TestMarkdown(t *testing.T) {
	var r Run
	r.Row(NewRow("a", "s", "b", []float64{3}, []float64{1}, Goal{MaxRatio: 2}).Because("since"))
	r.Row(NewRow("c", "s", "b", []float64{1}, []float64{1}, Goal{MaxRatio: 2}).Because("no reason"))
	var out bytes.Buffer
	r.Report.Markdown(&out)
	if text := out.String(); !strings.Contains(text, "**a**: since") || strings.Contains(text, "no reason") {
		t.Errorf("got\n%s", text)
	}
}
