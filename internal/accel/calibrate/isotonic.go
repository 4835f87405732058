package calibrate

import "slices"

// isotonic returns a non-decreasing sequence with the least sum of distances from values: each run of
// decreasing values becomes its lower median (pool adjacent violators; Robertson and Wright, "Algorithms
// in Order Restricted Statistical Inference", Annals of Statistics 8(3), 1980). A value that is much
// too small or much too large hardly changes the others.
func isotonic(values []float64) []float64 {
	var blocks [][]float64 // sorted
	for _, v := range values {
		blocks = append(blocks, []float64{v})
		for n := len(blocks); n > 1 && lowerMedian(blocks[n-2]) > lowerMedian(blocks[n-1]); n = len(blocks) {
			pooled := slices.Concat(blocks[n-2], blocks[n-1])
			slices.Sort(pooled)
			blocks = append(blocks[:n-2], pooled)
		}
	}
	fitted := make([]float64, 0, len(values))
	for _, b := range blocks {
		fitted = append(fitted, slices.Repeat([]float64{lowerMedian(b)}, len(b))...)
	}
	return fitted
}

// lowerMedian returns the middle of sorted values, the lower one of two.
func lowerMedian(sorted []float64) float64 { return sorted[(len(sorted)-1)/2] }
