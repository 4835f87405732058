// Package need decides what a test does on a machine that lacks something it
// needs: it skips, unless OUTBOARD_TEST_REQUIRE names the thing, or says "all",
// as `make test` does: then it fails. So a check that never ran is never taken
// for one that passed.
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

// That skips or fails the test unless ok. name is what the variable may name;
// how says how to get it.
func That(t testing.TB, name string, ok bool, how string) {
	t.Helper()
	if ok {
		return
	}
	if required(name) {
		t.Fatalf("%s is required but missing: %s", name, how)
	}
	t.Skipf("%s is missing: %s", name, how)
}

// Program wants a program on the path.
func Program(t testing.TB, name string) {
	t.Helper()
	_, err := exec.LookPath(name)
	That(t, name, err == nil, "install it (`make test` does)")
}

// Root wants to run as root, to make network namespaces.
func Root(t testing.TB) {
	t.Helper()
	That(t, "root", os.Geteuid() == 0, "run as root")
}

func required(name string) bool {
	names := strings.Split(os.Getenv(Variable), ",")
	return slices.Contains(names, name) || slices.Contains(names, "all")
}
