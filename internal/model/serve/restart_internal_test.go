package serve

import (
	"testing"
	"time"
)

// Workers that end soon are restarted later and later, until one has run for long.
func TestRestartsAreDelayed(t *testing.T) {
	i := &instance{}
	i.countCrash(time.Second)
	first := i.restartDelay()
	for range 20 {
		i.countCrash(time.Second)
	}
	if most := i.restartDelay(); most != lastRestart || first >= most {
		t.Errorf("waits %v after a crash and %v after 21", first, most)
	}
	i.countCrash(stableRun)
	if again := i.restartDelay(); again != first {
		t.Errorf("waits %v after a worker that ran for %v, want %v", again, stableRun, first)
	}
}
