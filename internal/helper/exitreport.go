package helper

import (
	"slices"
	"strings"
)

const (
	// reportLines is how many of the last lines an exit report has.
	reportLines = 3
	// maxReportLine bounds each of them in bytes.
	maxReportLine = 300
)

// crashPrefixes begin the line with which Go's runtime says why it ends the process: a panic, an
// error of the runtime, or a signal in foreign code. The stacks of all goroutines follow.
var crashPrefixes = []string{
	"panic: ", "fatal error: ",
	"SIGABRT: ", "SIGBUS: ", "SIGFPE: ", "SIGILL: ", "SIGSEGV: ", "SIGSYS: ", "SIGTRAP: ",
}

// IsCrash reports whether a line of standard error is the one with which Go's runtime says why it
// ends the process.
func IsCrash(line string) bool {
	return slices.ContainsFunc(crashPrefixes, func(prefix string) bool { return strings.HasPrefix(line, prefix) })
}

// An exitReport says why a process has ended: the last lines that it wrote, or the first line of a
// Go program's panic, whose last lines only name its place.
type exitReport struct {
	crash string
	lines []string
}

// addRecord adds the text of a log record.
func (r *exitReport) addRecord(line string) {
	if len(line) > maxReportLine {
		line = strings.ToValidUTF8(line[:maxReportLine], "") + "..."
	}
	r.lines = append(r.lines, line)
	r.lines = r.lines[max(0, len(r.lines)-reportLines):]
}

// addLine adds a line that is no record.
func (r *exitReport) addLine(line string) {
	if r.crash == "" && IsCrash(line) {
		r.crash = line
	}
	r.addRecord(line)
}

func (r *exitReport) String() string {
	switch {
	case r.crash != "":
		return r.crash
	case len(r.lines) == 0:
		return ""
	}
	return "its log ends with: " + strings.Join(r.lines, " | ")
}
