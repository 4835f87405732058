package shm

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// long is a limit that no test reaches: after a lost wake-up the test hangs until its binary is
// stopped.
const long = time.Hour

// newBell returns a bell whose notifications go to the channel.
func newBell() (Bell, chan struct{}) {
	rung := make(chan struct{}, 1)
	return Bell{Word: new(atomic.Uint32), Sleeper: new(atomic.Uint32), Notify: func() {
		select {
		case rung <- struct{}{}:
		default:
		}
	}}, rung
}

// A consumer that sleeps on a bell or parks misses no ring of a producer, whichever of them is
// first.
func TestBell(t *testing.T) {
	for name, wait := range map[string]func(b Bell, p *AdaptiveWait, old uint32, rung <-chan struct{}){
		"asleep": func(b Bell, p *AdaptiveWait, old uint32, _ <-chan struct{}) { b.Sleep(p, old, long) },
		"parked": func(b Bell, _ *AdaptiveWait, old uint32, rung <-chan struct{}) { b.Park(old, rung, long) },
	} {
		t.Run(name, func(t *testing.T) {
			const rings = 2000
			b, rung := newBell()
			var produced atomic.Uint32
			var consumer sync.WaitGroup
			consumer.Go(func() {
				var p AdaptiveWait
				for {
					old := b.Now()
					if produced.Load() == rings {
						return
					}
					wait(b, &p, old, rung)
				}
			})
			for i := range uint32(rings) {
				produced.Store(i + 1)
				b.Ring()
			}
			consumer.Wait()
			if b.Sleeper.Load() != awake {
				t.Errorf("afterwards the flag is %d", b.Sleeper.Load())
			}
		})
	}
}

// RingAlways wakes a sleeper whose flag another process has cleared.
func TestBellRingsWithoutTheFlag(t *testing.T) {
	b, _ := newBell()
	asleepOn := b.Now()
	done := make(chan struct{})
	go func() {
		defer close(done)
		b.Sleep(new(AdaptiveWait), asleepOn, long)
	}()
	b.Sleeper.Store(awake) // as a hostile process does at any time
	b.RingAlways()
	<-done
}

// A bell without Notify never parks, and ringing it beside a flag that says so does no harm.
func TestBellWithoutNotify(t *testing.T) {
	b := Bell{Word: new(atomic.Uint32), Sleeper: new(atomic.Uint32)}
	b.Sleeper.Store(parked)
	b.Ring()
	if b.Now() != 1 || b.Sleeper.Load() != awake {
		t.Errorf("the counter is %d, the flag %d", b.Now(), b.Sleeper.Load())
	}
}

// Where nobody rings, the limit ends a wait.
func TestBellLimit(t *testing.T) {
	b, rung := newBell()
	b.Park(b.Now(), rung, time.Millisecond)
	b.Sleep(new(AdaptiveWait), b.Now(), time.Millisecond)
	if b.Sleeper.Load() != awake {
		t.Errorf("afterwards the flag is %d", b.Sleeper.Load())
	}
}
