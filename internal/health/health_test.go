package health

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// A problem keeps its beginning while its text changes, and goes with a report of nil.
func TestBoard(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b Board
		began := time.Now().UTC()
		report := b.Reporter("state")
		report(errors.New("the disk is full"))
		time.Sleep(time.Minute)
		report(errors.New("no quorum"))
		b.Report("fabric", errors.New("too many open files"))
		want := []Problem{{"fabric", "too many open files", began.Add(time.Minute)}, {"state", "no quorum", began}}
		if diff := cmp.Diff(want, b.Problems()); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		report(nil)
		b.Report("fabric", nil)
		b.Report("gateway", nil)
		if got := b.Problems(); len(got) != 0 {
			t.Errorf("left: %v", got)
		}
		(*Board)(nil).Report("x", errors.New("y"))
	})
}
