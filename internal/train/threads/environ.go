package threads

import (
	"strconv"

	"github.com/outboard-run/outboard"
)

// Auto lets the ranks choose their threads by measured times.
const Auto = "auto"

// Names of variables of a rank: the number that it begins with, and the largest number to try.
const (
	variable     = "OMP_NUM_THREADS"
	mostVariable = "OUTBOARD_THREADS"
)

// Check returns an error unless text is "", Auto or a number of threads.
func Check(text string) error {
	if n, err := strconv.Atoi(text); text != "" && text != Auto && (err != nil || n < 1 || n > maxThreads) {
		return outboard.Errorf(outboard.Invalid, "", "%.40q: want auto, or 1 to %d", text, maxThreads)
	}
	return nil
}

// Environ returns the variables of a rank that shares the processors with others of its node: the
// requested number of threads, or its equal share. With Auto it may try up to twice that, since
// ranks that wait leave processors to others.
func Environ(text string, processors, ranks int) map[string]string {
	share := max(1, processors/ranks)
	switch text {
	case "":
		return map[string]string{variable: strconv.Itoa(share)}
	case Auto:
		return map[string]string{variable: strconv.Itoa(share), mostVariable: strconv.Itoa(min(processors, 2*share, maxThreads))}
	default:
		return map[string]string{variable: text}
	}
}
