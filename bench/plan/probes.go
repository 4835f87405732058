package main

import (
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"

	"github.com/outboard-run/outboard/bench/paired"
)

var costRatio = regexp.MustCompile(`cost ratio: ([\d.]+)`)

// probes runs the test in which the nodes of pools of 10 and of 100 probe each other, on a virtual
// clock.
func probes(ctx context.Context) (row paired.Row, err error) {
	const test = "TestCostIndependentOfPool"
	out, err := exec.CommandContext(ctx, "go", "test", "-v", "-count=1", "-run", "^"+test+"$", "./internal/pool/network").CombinedOutput()
	m := costRatio.FindSubmatch(out)
	if err != nil || m == nil {
		return row, fmt.Errorf("%s: %w: %s", test, err, out)
	}
	ratio, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return row, err
	}
	return paired.NewRow("probes of a node in a pool of 100, in bytes, as a multiple of those in one of 10 (virtual clock)", "", "", []float64{ratio}, nil, paired.Goal{Min: 0.9, Max: 1.1}), nil
}
