package lend

import (
	"bytes"
	"slices"
	"strings"
)

// workerEnviron is the environment that a worker is started with. What `outboard
// run` gave this process is dropped: a worker loads the machine's own drivers.
func workerEnviron(environ []string) []string {
	borrowed := slices.ContainsFunc(environ, func(v string) bool { return strings.HasPrefix(v, "OUTBOARD_SOCKET=") })
	return slices.DeleteFunc(slices.Clone(environ), func(v string) bool {
		return strings.HasPrefix(v, "OUTBOARD_") || borrowed && strings.HasPrefix(v, "OCL_ICD_VENDORS=")
	})
}

// exitLine returns the line of the end of a process's standard error that says why it ended.
func exitLine(tail []byte) string {
	lines := bytes.Split(bytes.TrimSpace(tail), []byte("\n"))
	best := lines[len(lines)-1]
	for _, l := range lines {
		// Go's runtime puts the reason first and the stacks after it.
		if bytes.HasPrefix(l, []byte("panic: ")) || bytes.HasPrefix(l, []byte("fatal error: ")) {
			best = l
			break
		}
	}
	return strings.ToValidUTF8(string(best[:min(len(best), 300)]), "?")
}
