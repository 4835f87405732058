package overhead

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/outboard-run/outboard/internal/accel/trace"
)

// The model of flow control against the transport itself: both on clocks without a processor's time,
// so that only propagation and credit count. How much credit a burst finds depends on how the
// transport's goroutines interleave, by a round trip for each burst at most.
func TestFlowControlIsTheTransports(t *testing.T) {
	const rtt = 5 * time.Millisecond
	repeat := func(n int, of ...exchange) (all []exchange) {
		for range n {
			all = append(all, of...)
		}
		return all
	}
	for name, c := range map[string]struct {
		exchanges []exchange
		// bursts may find no credit, or all of it.
		bursts int
	}{
		"small messages": {repeat(100, exchange{100, 100, 0}), 0},
		// Frames of a video: there, three waits, and back.
		"bursts beyond half of the window": {repeat(40, exchange{345_000, 40, 10 * time.Millisecond}, exchange{100, 40, 0}, exchange{100, 345_000, 0}), 80},
		"bursts within half of the window": {repeat(40, exchange{200_000, 40, 10 * time.Millisecond}, exchange{100, 40, 0}, exchange{100, 200_000, 0}), 0},
		"bursts in quick succession":       {repeat(40, exchange{1_000_000, 40, 0}), 2},
		"one large write":                  {[]exchange{{81 << 20, 40, 0}}, 5},
		"one large read":                   {[]exchange{{40, 81 << 20, 0}}, 5},
		"large writes":                     {repeat(5, exchange{20 << 20, 40, 0}), 10},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				transport := onVirtualLink(t, rtt, 0, c.exchanges)
				p := newProgram()
				for _, e := range c.exchanges {
					p.write(uint64(e.up), 0, 0)
					p.read(uint64(e.down), 0, 0)
					p.call(opInfo, trace.AnsweredLocally, e.gap, 0)
				}
				model := predictOne(t, p.exit(0), Link{RTT: rtt}, Options{Constants: zero()})
				trips := func(d time.Duration) float64 { return d.Seconds() / rtt.Seconds() }
				t.Logf("transport %.1f round trips, model %.1f", trips(transport), trips(model))
				slack := transport/20 + rtt
				if model < transport-slack || model > transport+slack+time.Duration(c.bursts)*rtt {
					t.Errorf("%.1f round trips by the model, %.1f by the transport: want as many, and up to %d more", trips(model), trips(transport), c.bursts)
				}
			})
		})
	}
}

// Over a link with a rate, transfers near the size of the ring wait for acknowledgements as well as for
// credit.
func TestFlowControlAtARate(t *testing.T) {
	const rate, count = 900e6, 18
	for _, rtt := range []time.Duration{200 * time.Microsecond, time.Millisecond, 5 * time.Millisecond} {
		for _, size := range []int{500_000, 3_900_000, 12_000_000} {
			for _, gap := range []time.Duration{0, 30 * time.Millisecond} {
				t.Run(fmt.Sprint(rtt, " ", size, " ", gap), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						exchanges := slices.Repeat([]exchange{{size, 40, gap}}, count)
						p := newProgram()
						for range exchanges {
							p.write(uint64(size), 0, 0)
							p.read(40, 0, 0)
							p.call(opInfo, trace.AnsweredLocally, gap, 0)
						}
						transport := onVirtualLink(t, rtt, rate, exchanges) - count*gap
						model := predictOne(t, p.exit(0), Link{RTT: rtt, Up: 8 * rate, Down: 8 * rate}, Options{Constants: zero()}) - count*gap
						within(t, "by the model", model, transport, transport/20)
					})
				})
			}
		}
	}
}
