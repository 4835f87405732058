package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
)

// samples are the values of one measurement, by path to the device and name.
type samples map[string]map[string][]float64

func (s samples) add(transport, name string, v float64) {
	if s[transport] == nil {
		s[transport] = map[string][]float64{}
	}
	s[transport][name] = append(s[transport][name], v)
}

// measure runs the program of small measurements once.
func (b *bench) measure(ctx context.Context, launcher suite.Launcher, into samples, label string, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := launcher(ctx, filepath.Join(b.Dir, "calls"), args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w: %s", label, err, strings.TrimSpace(stderr.String()))
	}
	for line := range bytes.Lines(out) {
		var m struct {
			Name  string
			Value float64
			Waits float64 `json:"own_waits"`
		}
		if err := json.Unmarshal(line, &m); err != nil {
			return fmt.Errorf("%s: %w in %q", label, err, line)
		}
		into.add(label, m.Name, m.Value)
		if m.Waits > 0 {
			into.add(label, "own_waits", m.Waits)
		}
	}
	return nil
}

// A goal is the target of one measurement over one path.
type goal struct {
	transport, name, title, unit string
	goal                         paired.Goal
	reason                       string
}

const tlsCost = "Both ends' relays add a wake-up each way, and client, two relays, worker and device share the cores. " +
	"Short runs of the same program on the same day gave medians from 45 to 220 us: a wake-up costs 2 us where the processor is awake " +
	"and 20 to 40 us where it sleeps, and there are six."

const streamCost = "Each launch is encrypted, relayed and decrypted by two more processes, on the cores that execute the launches."

var callGoals = []goal{
	{shared, "read_small", "smallest blocking read", "us", paired.Goal{Max: 60}, ""},
	{network, "read_small", "smallest blocking read", "us", paired.Goal{Max: 90}, tlsCost},
	{shared, "write_read", "write, then blocking read", "us", paired.Goal{Max: 100}, ""},
	{network, "write_read", "write, then blocking read", "us", paired.Goal{Max: 100}, tlsCost},
	{shared, "launch_finish", "launch and clFinish", "us", paired.Goal{Max: 75}, ""},
	{network, "launch_finish", "launch and clFinish", "us", paired.Goal{}, ""},
	{shared, "launch_read", "launch and a read of 4 KiB", "us", paired.Goal{}, ""},
	{shared, "image_map", "map, write and unmap of a tiny image", "us", paired.Goal{}, ""},
	{shared, "image_copy_map", "copy, map and unmap of a tiny image", "us", paired.Goal{}, ""},
	{shared, "launch_stream", "1,000 launches back to back, each", "us", paired.Goal{Max: 5}, ""},
	{network, "launch_stream", "1,000 launches back to back, each", "us", paired.Goal{Max: 5}, streamCost},
	{shared, "write_large", "256 MiB write", "GB/s", paired.Goal{Min: 5}, ""},
	{shared, "read_large", "256 MiB read", "GB/s", paired.Goal{Min: 5}, ""},
	{network, "write_large", "256 MiB write", "GB/s", paired.Goal{Min: 2.18}, bulkCost},
	{network, "read_large", "256 MiB read", "GB/s", paired.Goal{Min: 2.16}, bulkCost},
}

const bulkCost = "Each byte is copied into the ring, encrypted, sent, received, decrypted and copied out by processes on the same two cores: " +
	"about 1.3 s of processor time for a GB. A profile of the device's node during writes and reads in turn shows 39 % in system calls (TCP), 31 % in AES-GCM " +
	"and 22 % in copies, most of them inside crypto/tls, which decrypts into a buffer of its own; nothing else has more than 2 %. " +
	"The kernel here has no TLS of its own that could take the copies away."

func (b *bench) calls(ctx context.Context) error {
	ways := []string{local, shared, network}
	if b.peer.isInstalled() {
		ways = append(ways, remote)
	}
	values := samples{}
	if err := b.warmUp(ctx, ways); err != nil {
		return err
	}
	for range b.Rounds(5, 2) {
		for _, way := range ways {
			if err := b.measure(ctx, b.launcher(way), values, way, b.callArgs(way)...); err != nil {
				return err
			}
		}
	}
	for _, g := range callGoals {
		b.Row(paired.NewRow(g.title+", "+g.transport, g.unit, local, values[g.transport][g.name], values[local][g.name], g.goal).Because(g.reason))
	}
	if b.peer.isInstalled() {
		b.peerRows(values)
	}
	return nil
}

// warmUp makes a few of all measured calls over each path that no section has warmed up before, so
// that the kernel caches have what the measurements compile.
func (b *bench) warmUp(ctx context.Context, ways []string) error {
	few := []string{"-reads", "10", "-alternate", "10", "-launches", "10", "-small", "10", "-streams", "1", "-hundreds", "0", "-transfers", "0"}
	for _, way := range ways {
		if slices.Contains(b.warm, way) {
			continue
		}
		if err := b.measure(ctx, b.launcher(way), samples{}, way, few...); err != nil {
			return err
		}
		b.warm = append(b.warm, way)
	}
	return nil
}

// callArgs returns arguments that limit a run of the small measurements to about two seconds.
func (b *bench) callArgs(transport string) []string {
	args := []string{"-reads", "1000", "-alternate", "500", "-launches", "500", "-small", "300", "-streams", "10", "-hundreds", "0", "-transfers", strconv.Itoa(b.Rounds(3, 1))}
	if transport == remote { // each takes 43 ms
		args = append(args, "-alternate", "20", "-streams", "2")
	}
	return args
}

func (b *bench) peerRows(values samples) {
	for _, g := range callGoals {
		if g.transport == network {
			b.Row(paired.NewRow(g.title+", "+network+" against the peer", g.unit, remote, values[network][g.name], values[remote][g.name], paired.Goal{}))
		}
	}
}

// delayed measures at a round trip of 10 ms, and counts round trips at a round-trip time so long
// that the spread of a build's time does not blur the count. Its pool has a relay between the
// nodes, which would slow the other measurements.
func (b *bench) delayed(ctx context.Context) (err error) {
	pool, err := b.startPool(ctx, "distant", &netem.Link{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	values := samples{}
	for range b.Rounds(5, 2) {
		for _, m := range []struct {
			label string
			rtt   time.Duration
			args  []string
		}{
			{"far", 10 * time.Millisecond, []string{"-only", "hundred_launches", "-hundreds", "5", "-warm", "20"}},
			{"far start", 200 * time.Millisecond, []string{"-only", "startup"}},
			{"near start", 0, []string{"-only", "startup"}},
		} {
			pool.Node("harbour").SetLink(netem.Link{RTT: m.rtt})
			if err := b.measure(ctx, borrowing(pool.Node("dinghy")), values, m.label, m.args...); err != nil {
				return err
			}
		}
	}
	hundred := scale(values["far"]["hundred_launches"], 1e-3)
	b.Row(paired.NewRow("100 launches and a finish at a round trip of 10 ms", "ms", "", hundred, nil, paired.Goal{Max: 25}))
	var trips []float64
	for i, far := range values["far start"]["startup"] {
		trips = append(trips, (far-values["near start"]["startup"][i])/200_000-values["far start"]["own_waits"][i])
	}
	b.Row(paired.NewRow("start-up to the first result: round trips beyond the program's own", "round trips", "", trips, nil, paired.Goal{Max: 3}))
	return nil
}

func scale(values []float64, by float64) []float64 {
	scaled := make([]float64, len(values))
	for i, v := range values {
		scaled[i] = v * by
	}
	return scaled
}
