package lend

import (
	"strings"

	"github.com/outboard-run/outboard/internal/helper"
)

// maxReason bounds the reason of a process's end in bytes.
const maxReason = 300

// An exitReason selects the line of a process's standard error that says why the process ended: that
// of a crash, else the last one.
type exitReason struct {
	crash, last string
}

// addLine adds a line, which is not blank.
func (r *exitReason) addLine(line string) {
	r.last = strings.ToValidUTF8(line[:min(len(line), maxReason)], "?")
	if helper.IsCrash(line) {
		r.crash = r.last
	}
}

func (r *exitReason) String() string {
	if r.crash != "" {
		return r.crash
	}
	return r.last
}
