package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// The network that loses packets: its rate, the delay in each direction, and the sum's size.
const (
	lossyBits  = 1e8
	lossyDelay = 5 * time.Millisecond
	lossySize  = 4 << 20
)

// loss measures all-reduces over a network that loses packets: in datagrams against streams.
func (b *bench) loss(ctx context.Context) error {
	for _, percent := range []float64{0.1, 1} {
		datagrams, err := b.lossySum(ctx, percent, "loss=0.01,datagrams", "")
		if err != nil || datagrams == nil {
			return err
		}
		for _, congestion := range []string{"reno", "bbr"} {
			plain, err := b.lossySum(ctx, percent, "plain", congestion)
			if err != nil {
				return err
			}
			name := fmt.Sprintf("all-reduce of %s over a link of 100 Mbit/s with a round trip of %v that loses %v %% of all packets: speed of datagrams (bound 1 %%) against the stream of TCP with %s",
				sizeText(lossySize), 2*lossyDelay, percent, congestion)
			b.Row(paired.NewRow(name, "calls/s", congestion, rates(datagrams), rates(plain), paired.Goal{MinRatio: 1}).
				Because("the headers of a datagram are 9 % of its elements, those of TCP 5 %, and a sum waits for about one and a half round trips"))
		}
	}
	return nil
}

// lossySum returns the times of all-reduces with a congestion control of TCP, nil where there are no
// namespaces.
func (b *bench) lossySum(ctx context.Context, percent float64, gradients, congestion string) ([]float64, error) {
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, fmt.Sprintf("lossy-%v-%.5s%s", percent, gradients, congestion)), Congestion: congestion,
		Nodes: []rig.Spec{{Name: "harbour", Args: jobsAllowed}, {Name: "dinghy", Args: jobsAllowed}},
	})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if !strings.Contains(r.Where(), "namespaces") {
		b.note("Sums over a network that loses packets were not measured: they need network namespaces (root).")
		return nil, nil
	}
	lossy, err := r.Lose(ctx, lossyBits, lossyDelay, percent/100)
	if err != nil {
		return nil, err
	}
	defer lossy.Close()
	script, err := b.script("allreduce.py")
	if err != nil {
		return nil, err
	}
	list, err := results(r.Node("harbour").Command(ctx, "train", "--ranks", "2", "--device", "type=cpu", "--gradients", gradients, "--",
		b.python, script, "0.3", strconv.Itoa(b.Rounds(9, 2)), strconv.Itoa(lossySize)))
	if err != nil {
		return nil, err
	}
	timings, err := timings(list)
	if err != nil {
		return nil, err
	}
	return timings[0].Outboard, nil
}
