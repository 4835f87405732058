package shared

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/shm"
)

// A goroutine that the reader has woken runs before the reader sleeps: with a single processor it
// would otherwise wait until the reader has spun and released the processor. The scheduler may decide
// otherwise now and then: it prefers its global queue every 61st time, and preempts goroutines.
func TestWokenGoroutineRunsBeforeTheReaderSleeps(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const attempts = 20
	before := 0
	for range attempts {
		if runsBeforeSleep() {
			before++
		}
	}
	if before <= attempts/2 {
		t.Errorf("%d of %d times a goroutine that the reader has woken ran before the reader slept", before, attempts)
	}
}

// runsBeforeSleep reports whether a goroutine that a reader wakes runs before the reader sleeps.
func runsBeforeSleep() bool {
	e := &laneEnd{conn: &Conn{}, bell: shm.Bell{Word: new(atomic.Uint32), Sleeper: new(atomic.Uint32)}}
	e.conn.options.maxSleep = time.Hour
	w := newWaiter()
	awake := make(chan bool, 1)
	go func() {
		<-w.wake
		awake <- e.bell.Sleeper.Load() == 0
		e.bell.RingAlways()
	}()
	runtime.Gosched() // it waits
	old := e.bell.Now()
	e.mu.Lock()
	w.parked = true
	e.markReady(&w)
	e.mu.Unlock()
	e.sleep(old)
	return <-awake
}
