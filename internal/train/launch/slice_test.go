package launch

import (
	"bytes"
	"testing"

	"github.com/outboard-run/outboard/internal/timeslice"
)

// A rank does not inherit the short time slices of the node that starts it.
func TestRanksHaveLongSlices(t *testing.T) {
	if timeslice.Set(timeslice.Short) != nil || timeslice.Current() != timeslice.Short {
		t.Log("the kernel has no time slices for threads")
		return
	}
	defer func() { _ = timeslice.Set(0) }()
	var out bytes.Buffer
	j := job("true", 1, &out)
	j.Started = func(_, pid int) {
		if slice := timeslice.Of(pid); slice == timeslice.Short {
			t.Errorf("the rank has slices of %v", slice)
		}
	}
	if err := Run(t.Context(), j); err != nil {
		t.Fatal(err)
	}
}
