package plan

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

// transformer returns layers whose sizes are those of a transformer's blocks, with some spread.
func transformer(n int, seed uint64) []Layer {
	r := rand.New(rand.NewPCG(seed, 0))
	vary := func(x float64) float64 { return x * (0.5 + r.Float64()) }
	all := make([]Layer, n)
	for i := range all {
		all[i] = Layer{
			Name: fmt.Sprintf("block%d", i), Parameters: vary(30e6), Output: vary(400e3), Stored: vary(5e6),
			Forward: vary(0.05), Backward: vary(0.1), Launch: 1e-3,
		}
	}
	return all
}

// kinds returns n kinds of device: memory sizes of functions, whose speed grows with the memory.
func kinds(n int) []Device {
	all := make([]Device, n)
	for i := range all {
		gib := float64(i + 1)
		all[i] = Device{
			Name: fmt.Sprintf("%gGiB", gib), Speed: 0.6 * gib, Memory: gib * (1 << 30), Bandwidth: 70e6, Latency: 0.02,
			Price: 1.6e-5 * gib,
		}
	}
	return all
}

// unlike returns n kinds of device that have nothing to do with each other, some of them few.
func unlike(n int, seed uint64) []Device {
	r := rand.New(rand.NewPCG(seed, 1))
	all := make([]Device, n)
	for i := range all {
		all[i] = Device{
			Name: fmt.Sprint("kind", i), Speed: 0.5 + 8*r.Float64(), Memory: (0.5 + 8*r.Float64()) * (1 << 30),
			Bandwidth: 20e6 + 200e6*r.Float64(), Latency: 0.02 * r.Float64(), Price: 1e-5 + 1e-4*r.Float64(), Count: r.IntN(3) * 4,
		}
	}
	return all
}

func BenchmarkBest(b *testing.B) {
	for _, layers := range []int{30, 200} {
		for _, o := range []string{"fastest", "cheapest", "deadline"} {
			b.Run(fmt.Sprintf("layers=%d/%s/sizes", layers, o), func(b *testing.B) { benchmarkBest(b, layers, o, func(uint64) []Device { return kinds(8) }) })
			b.Run(fmt.Sprintf("layers=%d/%s/unlike", layers, o), func(b *testing.B) { benchmarkBest(b, layers, o, func(s uint64) []Device { return unlike(8, s) }) })
		}
	}
}

func benchmarkBest(b *testing.B, layers int, objective string, devices func(seed uint64) []Device) {
	for i := range b.N {
		merged, _ := Merge(transformer(layers, uint64(i)), MaxLayers)
		j := &Job{Layers: merged, Devices: devices(uint64(i)), Batch: 64, Optimizer: 3, Reduction: Store}
		var o Objective
		if objective != "fastest" {
			o.Cheapest = true
		}
		if objective == "deadline" {
			b.StopTimer()
			fastest, err := j.Best(context.Background(), Objective{})
			if err != nil {
				b.Fatal(err)
			}
			o.MaxTime = 1.3 * fastest.Time
			b.StartTimer()
		}
		if _, err := j.Best(context.Background(), o); err != nil {
			b.Fatal(err)
		}
	}
}
