package cli

import (
	"strings"
	"testing"
)

// The store by which ranks find each other is closed to other machines, with the back end of this
// package and with gloo.
func TestStoreIsClosedToOtherMachines(t *testing.T) {
	for _, backend := range []string{"outboard", "gloo"} {
		status, out, errs := runRanks(t, "store.py", []string{backend}, "--ranks", "2")
		if status != 0 || strings.Count(out, "done") != 2 {
			t.Errorf("%s: status %d: %s\n%s", backend, status, out, errs)
		}
	}
}
