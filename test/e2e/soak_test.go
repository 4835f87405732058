//go:build conformance

package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/bench/suite"
	"github.com/outboard-run/outboard/internal/need"
)

func TestConformanceThousandSessionsKilled(t *testing.T) { killAtRandom(t, 1000) }

// soakVariable says how long the soak lasts, such as 10m.
const soakVariable = "OUTBOARD_SOAK"

// Mixed programs for a while: the nodes' memory ends where it began.
func TestConformanceSoak(t *testing.T) {
	for _, program := range []string{"ffmpeg", "clinfo", "clpeak", "clblast_test_xaxpy"} {
		need.Program(t, program)
	}
	long := time.Minute
	if text := os.Getenv(soakVariable); text != "" {
		var err error
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
	}
	r := own(t, rig.Options{Nodes: pair()})
	soak(t, r, long/5) // caches fill
	before := map[string]footprint{}
	for _, name := range []string{"harbour", "dinghy"} {
		before[name] = measure(t, r.Node(name))
	}
	runs := soak(t, r, long)
	fmt.Printf("soak: %d runs of mixed programs in %v\n", runs, long)
	for name, f := range before {
		waitForFootprint(t, r.Node(name), f)
		after := measure(t, r.Node(name))
		fmt.Printf("%s began with %v\n%s ended with %v\n", name, f, name, after)
		if after.memory > f.memory+f.memory/10 {
			t.Errorf("%s: memory grew from %v to %v", name, f.memory, after.memory)
		}
	}
}

// soak runs programs, three at a time, on both ways to the device.
func soak(t *testing.T, r *rig.Rig, long time.Duration) (runs int64) {
	programs := []suite.Program{
		suite.FFmpeg("avgblur_opencl=sizeX=3", 10), suite.FFmpeg("unsharp_opencl", 10), suite.CLInfo(clinfoDiffers), suite.CLBlast("xaxpy"),
		suite.CLPeak("--kernel-latency"), filter("program", graphs(t)["program"], 10), filter("chain", graphs(t)["chain"], 5),
	}
	end := time.Now().Add(long)
	var working sync.WaitGroup
	var count atomic.Int64
	for i := range 3 {
		random := rand.New(rand.NewPCG(3, uint64(i)))
		working.Go(func() {
			for time.Now().Before(end) && !t.Failed() {
				p := programs[random.IntN(len(programs))]
				way := through(r, []string{"harbour", "dinghy"}[random.IntN(2)], "--memory", "1GiB", "--timeout", "0")
				if _, err := p.Essence(p.Run(t.Context(), way, t.TempDir())); err != nil {
					t.Errorf("%s: %v", p.Name, err)
				}
				count.Add(1)
			}
		})
	}
	working.Wait()
	return count.Load()
}
