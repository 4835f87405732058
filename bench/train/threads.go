package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// threads compares `--threads auto` with the default and with all fixed numbers, for two ranks on
// two nodes. The steps in which auto measures count, too.
func (b *bench) threads(ctx context.Context) error {
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "nodes"),
		Nodes: []rig.Spec{{Name: "harbour", Args: jobsAllowed}, {Name: "dinghy", Args: jobsAllowed}},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	script, err := b.script("threads.py")
	if err != nil {
		return err
	}
	numbers := []string{"", "auto"}
	for n := range min(runtime.NumCPU(), 4) {
		numbers = append(numbers, strconv.Itoa(n+1))
	}
	means := make([][]float64, len(numbers))
	for range b.Rounds(5, 2) {
		for i, number := range numbers {
			args := []string{
				"train", "--ranks", "2", "--device", "type=cpu", "--threads", number, "--", b.python, script, strconv.Itoa(b.Rounds(300, 200)),
			}
			mean, err := meanStep(results(r.Node("harbour").Command(ctx, args...)))
			if err != nil {
				return fmt.Errorf("threads %q: %w", number, err)
			}
			means[i] = append(means[i], mean)
		}
	}
	best := means[2]
	for _, m := range means[3:] {
		if paired.Median(m) < paired.Median(best) {
			best = m
		}
	}
	b.Row(paired.NewRow("threads by measurement against the default (all processors), a data-parallel step", "ms", "default", means[1], means[0], paired.Goal{MaxRatio: 0.9}))
	b.Row(paired.NewRow("threads by measurement against the best fixed number", "ms", "best", means[1], best, paired.Goal{MaxRatio: 1.03}))
	b.note("Threads: two nodes share this machine's processors, as containers do, and each takes all of them for its own.")
	return nil
}

// meanStep returns the mean milliseconds of a step of threads.py, without the first ten.
func meanStep(list []result, err error) (float64, error) {
	const skipped = 10
	if err != nil {
		return 0, err
	}
	var timed struct {
		Seconds []float64 `json:"seconds"`
	}
	if len(list) != 1 {
		return 0, fmt.Errorf("%d results", len(list))
	}
	if err := json.Unmarshal(list[0].text, &timed); err != nil || len(timed.Seconds) <= skipped {
		return 0, fmt.Errorf("%d steps: %w", len(timed.Seconds), err)
	}
	sum := 0.0
	for _, s := range timed.Seconds[skipped:] {
		sum += s
	}
	return 1000 * sum / float64(len(timed.Seconds)-skipped), nil
}
