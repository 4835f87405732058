// Package racetest runs tests whose race detector does not report the data races of other modules.
package racetest

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// Main runs the tests of a package that is built with the race detector, and exits. The detector reads
// the path of its suppressions when a process starts, so Main executes the program once more with the
// file of that name. Programs with sandboxed workers can't use it: workers inherit the path, and can't
// read the file.
func Main(m *testing.M, suppressions string) {
	const variable = "GORACE"
	if os.Getenv(variable) != "" {
		os.Exit(m.Run())
	}
	path, err := filepath.Abs(suppressions)
	if err == nil {
		err = syscall.Exec("/proc/self/exe", os.Args, append(os.Environ(), variable+"=suppressions="+path))
	}
	fmt.Fprintln(os.Stderr, "execute the tests with the race detector's suppressions:", err)
	os.Exit(1)
}
