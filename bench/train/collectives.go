package main

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// sizes are the bytes of the measured all-reduces.
//
//nolint:gochecknoglobals // a table
var sizes = []int{16 << 20, 1 << 20, 4 << 10}

// A timing is the output of rank 0 of allreduce.py for a size: seconds of a call, by round.
type timing struct {
	Bytes    int       `json:"bytes"`
	Outboard []float64 `json:"outboard"`
	Gloo     []float64 `json:"gloo"`
}

func sizeText(bytes int) string {
	if bytes >= 1<<20 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	return fmt.Sprintf("%d KiB", bytes>>10)
}

// allReduce measures all-reduces between ranks of this machine against gloo.
func (b *bench) allReduce(ctx context.Context) error {
	for _, ranks := range []int{2, 4} {
		list, err := b.train(ctx, ranks, "allreduce.py", b.timingArgs()...)
		if err != nil {
			return err
		}
		timings, err := timings(list)
		if err != nil {
			return err
		}
		for _, t := range timings {
			name := fmt.Sprintf("all-reduce of %s, %d ranks of one machine: speed against gloo", sizeText(t.Bytes), ranks)
			b.Row(paired.NewRow(name, "calls/s", "gloo", rates(t.Outboard), rates(t.Gloo), paired.Goal{MinRatio: 1}).
				Because("a call passes through a thread of the back end and the server of the ranks, and waits for a processor at each"))
		}
	}
	return nil
}

// timingArgs returns the arguments of allreduce.py.
func (b *bench) timingArgs() []string {
	args := []string{"0.3", strconv.Itoa(b.Rounds(15, 3))}
	for _, size := range sizes {
		args = append(args, strconv.Itoa(size))
	}
	return args
}

func timings(list []result) ([]timing, error) {
	var all []timing
	for _, r := range list {
		var t timing
		if err := json.Unmarshal(r.text, &t); err != nil {
			return nil, err
		}
		all = append(all, t)
	}
	return all, nil
}

func rates(seconds []float64) []float64 {
	list := make([]float64, len(seconds))
	for i, s := range seconds {
		list[i] = 1 / s
	}
	return list
}

// links measures all-reduces between nodes in network namespaces with token buckets, against the
// bound.
func (b *bench) links(ctx context.Context) error {
	const nodes = 2
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "nodes"),
		Nodes: []rig.Spec{{Name: "harbour", Args: jobsAllowed}, {Name: "dinghy", Args: jobsAllowed}},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	if !strings.Contains(r.Where(), "namespaces") {
		b.note("All-reduces between nodes were not measured: they need network namespaces (root).")
		return nil
	}
	script, err := b.script("allreduce.py")
	if err != nil {
		return err
	}
	for _, link := range []struct {
		name string
		bits float64
	}{{"1 Gbit/s", 1e9}, {"100 Mbit/s", 1e8}} {
		if err := r.Shape(ctx, link.bits); err != nil {
			return err
		}
		args := append([]string{"train", "--ranks", strconv.Itoa(nodes), "--device", "type=cpu", "--", b.python, script}, b.timingArgs()...)
		list, err := results(r.Node("harbour").Command(ctx, args...))
		if err != nil {
			return err
		}
		timings, err := timings(list)
		if err != nil {
			return err
		}
		plain, err := exchangeTimes(ctx, r.Node("harbour"), r.Node("dinghy"), b.Rounds(15, 3))
		if err != nil {
			return err
		}
		for _, t := range timings {
			bound := 2 * (1 - 1.0/nodes) * float64(t.Bytes) / (link.bits / 8)
			name := fmt.Sprintf("all-reduce of %s between two namespaces at %s: time against the bound", sizeText(t.Bytes), link.name)
			b.Row(paired.NewRow(name, "ms", "bound", milliseconds(t.Outboard...), milliseconds(bound), paired.Goal{MaxRatio: 1.05}).
				Because(linkReason))
			b.Row(paired.NewRow("the same: time against a plain exchange of the same bytes over TCP", "ms", "TCP", milliseconds(t.Outboard...),
				milliseconds(plain[t.Bytes]...), paired.Goal{}))
		}
	}
	return nil
}

// linkReason is the reason why an all-reduce takes longer than the bytes on its link.
const linkReason = "the bound has neither the way between the ranks and their node nor that of a message: two processes on each " +
	"side, TLS and the collective's header; 4 KiB are that alone"

// jobsAllowed are the arguments that let a node of the bench start ranks.
//
//nolint:gochecknoglobals // a table
var jobsAllowed = []string{"--jobs", "trusted"}

func milliseconds(seconds ...float64) []float64 {
	list := make([]float64, len(seconds))
	for i, s := range seconds {
		list[i] = 1000 * s
	}
	return list
}
