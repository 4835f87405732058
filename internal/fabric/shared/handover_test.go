package shared

import (
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/shm"
)

// A goroutine that the reader has woken runs before the reader sleeps: with a single processor it
// would otherwise wait until the reader has spun and released the processor.
func TestWokenGoroutineRunsBeforeTheReaderSleeps(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
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
	if !<-awake {
		t.Error("the reader sleeps while a goroutine that it has woken waits for its processor")
	}
}
