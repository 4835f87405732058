package tenant

import (
	"strings"
	"testing"
)

// A module that was built as a command is refused with what to build instead.
func TestCommandsAreNoFunctions(t *testing.T) {
	for entry, want := range map[string]string{"handle": "build a library", "_start": ""} {
		err := checkEntry(entry, []string{"_start"})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", entry, err, want)
		}
	}
	if err := checkEntry("handel", []string{"handle"}); err == nil || !strings.Contains(err.Error(), `did you mean "handle"`) {
		t.Errorf("a misspelt entry: %v", err)
	}
}
