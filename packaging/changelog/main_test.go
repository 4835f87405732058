package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChangelog(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("0.9.0_2026-10-01/a.md", "# Old\n\nText.\n")
	write("0.10.0_2026-11-01/b.md", "# Second\n\nMore.\n")
	write("0.10.0_2026-11-01/a.md", "# First\n\nText\nof two lines.\n")
	write("unreleased/a.md", "# New\n\nText.\n")
	got, err := changelog(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := "# Changes\n\n`make changelog` writes this file from changelog/.\n" +
		"\n## Unreleased\n\n### New\n\nText.\n" +
		"\n## 0.10.0 (2026-11-01)\n\n### First\n\nText\nof two lines.\n\n### Second\n\nMore.\n" +
		"\n## 0.9.0 (2026-10-01)\n\n### Old\n\nText.\n"
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	write("unreleased/0014-web-gateway.md", "no heading\n")
	if got, err := changelog(dir); err != nil || !strings.Contains(got, "### Web gateway\n\nno heading\n") {
		t.Errorf("a change without a heading: %v\n%s", err, got)
	}
	write("unreleased/c.md", "# Only a heading\n")
	if _, err := changelog(dir); err == nil {
		t.Error("a change without a text was accepted")
	}
}

// The changes of this repository have the form that the program reads.
func TestChanges(t *testing.T) {
	if _, err := changelog("../../changelog"); err != nil {
		t.Error(err)
	}
}
