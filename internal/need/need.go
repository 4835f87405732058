// Package need skips a test on a machine that lacks one of its requirements, or fails it
// where OUTBOARD_TEST_REQUIRE names the requirement. `make test` sets the variable to "all",
// so that a test that did not run is not mistaken for one that passed.
package need

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// Variable is the environment variable that turns skips into failures: names
// joined by commas, or "all".
const Variable = "OUTBOARD_TEST_REQUIRE"

// Require skips or fails the test unless ok is true. name is the requirement's name in
// [Variable]; how tells the user how to meet the requirement.
func Require(t testing.TB, name string, ok bool, how string) {
	t.Helper()
	if ok {
		return
	}
	if required(name) {
		t.Fatalf("%s is required but missing: %s", name, how)
	}
	t.Skipf("%s is missing: %s", name, how)
}

// Program requires an executable in one of the directories of PATH.
func Program(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	Require(t, name, err == nil, "install it (`make test` does)")
}

// Root requires that the test runs as root, for example to create network namespaces.
func Root(t testing.TB) {
	t.Helper()
	Require(t, "root", os.Geteuid() == 0, "run as root")
}

func required(name string) bool {
	names := strings.Split(os.Getenv(Variable), ",")
	return slices.Contains(names, name) || slices.Contains(names, "all")
}
