// Command changelog writes CHANGELOG.md from the files below changelog/: one file for each change
// that a user notices, in unreleased/ or in VERSION_DATE/. A file consists of a line "# Heading",
// an empty line and a text; without that line the file's name is the heading.
package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	in := flag.String("in", "changelog", "the folder of the changes")
	out := flag.String("out", "CHANGELOG.md", "the file to write")
	flag.Parse()
	text, err := changelog(*in)
	if err == nil {
		err = os.WriteFile(*out, []byte(text), 0o644) //nolint:gosec // for everybody to read
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "changelog:", err)
		os.Exit(1)
	}
}

// unreleased is the folder of the changes since the latest release.
const unreleased = "unreleased"

// changelog joins the changes of all releases, the newest first.
func changelog(dir string) (string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return "", err
	}
	var releases []string
	for _, e := range entries {
		if e.IsDir() {
			releases = append(releases, e.Name())
		}
	}
	slices.SortFunc(releases, newestFirst)
	var b strings.Builder
	b.WriteString("# Changes\n\n`make changelog` writes this file from changelog/.\n")
	for _, release := range releases {
		fmt.Fprintf(&b, "\n## %s\n", title(release))
		if err := addChanges(&b, filepath.Join(dir, release)); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// newestFirst orders releases: unreleased, then by version.
func newestFirst(a, b string) int {
	switch {
	case a == unreleased:
		return -1
	case b == unreleased:
		return 1
	}
	return cmp.Or(compareVersions(b, a), strings.Compare(b, a))
}

// compareVersions compares the numbers of two release folders' versions, one by one.
func compareVersions(a, b string) int {
	numbers := func(release string) (all []int) {
		version, _, _ := strings.Cut(release, "_")
		for part := range strings.SplitSeq(version, ".") {
			n, _ := strconv.Atoi(part) // no number counts as 0; then names decide
			all = append(all, n)
		}
		return all
	}
	return slices.Compare(numbers(a), numbers(b))
}

// title returns "0.2.0 (2026-12-01)" for the folder 0.2.0_2026-12-01.
func title(release string) string {
	if release == unreleased {
		return "Unreleased"
	}
	version, date, ok := strings.Cut(release, "_")
	if !ok {
		return version
	}
	return fmt.Sprintf("%s (%s)", version, date)
}

// addChanges adds the changes of one release, by file name.
func addChanges(b *strings.Builder, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.md"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		heading, body, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
		heading, ok := strings.CutPrefix(heading, "# ")
		if !ok {
			heading, body = headingOf(file), string(text)
		}
		if strings.TrimSpace(body) == "" {
			return fmt.Errorf("%s: there is no text", file)
		}
		fmt.Fprintf(b, "\n### %s\n\n%s\n", heading, strings.TrimSpace(body))
	}
	return nil
}

// headingOf derives a heading from a file's name: "Gateway" from "0014-gateway.md".
func headingOf(file string) string {
	name := strings.TrimLeft(strings.TrimSuffix(filepath.Base(file), ".md"), "0123456789-")
	if name == "" {
		return "Changes"
	}
	return strings.ToUpper(name[:1]) + strings.ReplaceAll(name[1:], "-", " ")
}
