package lazyregexp_test

import (
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

func TestMethodsAreThoseOfRegexp(t *testing.T) {
	const pattern, text = `(\w+)@(\w+)`, "mail ada@example and bob@example"
	lazy, want := lazyregexp.New(pattern), regexp.MustCompile(pattern)
	if !lazy.MatchString(text) || lazy.MatchString("nobody") {
		t.Error("MatchString differs")
	}
	if got := lazy.FindIndex([]byte(text)); !slices.Equal(got, want.FindStringIndex(text)) {
		t.Errorf("FindIndex: %v", got)
	}
	if diff := cmp.Diff(want.FindStringSubmatch(text), lazy.FindStringSubmatch(text)); diff != "" {
		t.Errorf("FindStringSubmatch (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.FindStringSubmatchIndex(text), lazy.FindStringSubmatchIndex(text)); diff != "" {
		t.Errorf("FindStringSubmatchIndex (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.FindAllStringSubmatchIndex(text, -1), lazy.FindAllStringSubmatchIndex(text, -1)); diff != "" {
		t.Errorf("FindAllStringSubmatchIndex (-want +got):\n%s", diff)
	}
	if got, want := lazy.ReplaceAllString(text, "$2"), want.ReplaceAllString(text, "$2"); got != want {
		t.Errorf("ReplaceAllString: %q, want %q", got, want)
	}
}

// A pattern that is not valid must fail every test program that links it.
func TestWrongPatternPanicsInTests(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("New did not panic")
		}
	}()
	lazyregexp.New(`(`)
}
