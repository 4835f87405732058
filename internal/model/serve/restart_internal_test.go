package serve

import (
	"testing"
	"time"
)

// Workers that end soon are restarted later and later, until one has run for long.
func TestRestartsAreDelayed(t *testing.T) {
	i := &instance{}
	i.countCrash(time.Second)
	first := i.restartTime().Sub(i.crashed)
	for range 20 {
		i.countCrash(time.Second)
	}
	if most := i.restartTime().Sub(i.crashed); most != lastRestart || first >= most {
		t.Errorf("waits %v after a crash and %v after 21", first, most)
	}
	i.countCrash(stableRun)
	if again := i.restartTime().Sub(i.crashed); again != first {
		t.Errorf("waits %v after a worker that ran for %v, want %v", again, stableRun, first)
	}
}
