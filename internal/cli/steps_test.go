package cli

import (
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard/client"
)

// A step that runs says since when.
func TestRunningStep(t *testing.T) {
	ready := time.Now().Add(-time.Minute)
	s := client.Step{State: client.StateRunning, Ready: ready}
	if got := tookOf(s); !strings.HasPrefix(got, ">1m0") || !beganAt(s).Equal(ready) {
		t.Errorf("it runs for %s since %v", got, beganAt(s))
	}
	s = client.Step{State: client.StateCompleted, Ready: ready, Started: ready.Add(time.Second), Took: client.Duration(time.Second)}
	if got := tookOf(s); got != "1s" || !beganAt(s).Equal(s.Started) {
		t.Errorf("it took %s from %v", got, beganAt(s))
	}
}
