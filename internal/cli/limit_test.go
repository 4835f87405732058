package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A limit that is over after each step ends each process of each stage after one step. Losses,
// parameters, the optimizer's state and the random numbers are those of an undisturbed run, to the
// last bit, and each line is printed once.
func TestStagesWithALimitAreBitEqual(t *testing.T) {
	lines := func(flags ...string) ([]string, string) {
		status, out, errs := runRanks(t, "limit.py", nil, append([]string{"--ranks", "2", "--why"}, flags...)...)
		if status != 0 {
			t.Fatalf("status %d: %s%s", status, out, errs)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		slices.Sort(lines)
		return lines, errs
	}
	want, _ := lines()
	got, errs := lines("--stage-limit", "1ms")
	if len(want) != 2*4 || !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	// The last of three steps is made by the third process.
	ended := regexp.MustCompile(`rank \d, stage limit: 2 processes have ended because of the limit of 1ms`)
	if n := len(ended.FindAllString(errs, -1)); n != 2 {
		t.Errorf("%d of 2 stages say that they were started again: %s", n, errs)
	}
}
