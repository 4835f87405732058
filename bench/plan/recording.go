package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
)

// The number of runs of each kind with and without a recording.
const (
	recordingRounds      = 6
	recordingRoundsQuick = 2
)

// recorded returns the programs whose recordings are measured.
func (b *bench) recorded() []*program { return b.cases[:min(len(b.cases), b.Rounds(4, 1))] }

// recording measures the cost of a recording for its program: the processor time of the program's
// own process, with and without it in turn, and the bytes of a trace per call.
func (b *bench) recording(ctx context.Context) error {
	b.rig.Node(deviceNode).SetLink(netem.Link{})
	ratios, sizes := map[string][]float64{}, []float64{}
	for _, p := range b.recorded() {
		file := filepath.Join(b.Dir, p.short()+".recorded")
		for name, ways := range map[string][2]suite.Launcher{
			"on a leased device": {b.over("--no-trace"), b.over("--no-trace", "--trace", file)},
			"on a local device":  {suite.Local, b.start("--local", "--no-trace", "--trace", file)},
		} {
			var times [2][]float64
			for range b.Rounds(recordingRounds, recordingRoundsQuick) {
				for i, way := range ways {
					t, err := b.processorTime(ctx, p, way)
					if err != nil {
						return fmt.Errorf("%s %s: %w", p.Name, name, err)
					}
					times[i] = append(times[i], t.Seconds())
				}
			}
			with, without := paired.Median(times[1]), paired.Median(times[0])
			ratio := with / without
			fmt.Fprintf(os.Stderr, "  %-24s recorded %s: %.3f s of processor time, %.3f without\n", p.Name, name, with, without)
			ratios[name] = append(ratios[name], 100*(ratio-1))
			end, err := ending(file)
			if err != nil {
				return err
			}
			info, err := os.Stat(file)
			if err != nil {
				return err
			}
			sizes = append(sizes, float64(info.Size())/float64(max(1, end.Records)))
		}
	}
	for _, name := range []string{"on a leased device", "on a local device"} {
		b.Row(paired.NewRow("recording "+name+": more processor time of the program", "%", "", ratios[name], nil, paired.Goal{Max: 3}))
	}
	b.Row(paired.NewRow("size of a trace, its head included", "bytes/call", "", sizes, nil, paired.Goal{Max: 24}))
	return nil
}

var childTimes = regexp.MustCompile(`^(\d+)m([\d.]+)s (\d+)m([\d.]+)s$`)

// processorTime runs a program under a shell that reports the program's processor time, to the
// millisecond.
func (b *runner) processorTime(ctx context.Context, p *program, launcher suite.Launcher) (time.Duration, error) {
	timed := *p
	timed.Args = append([]string{"bash", "-c", `"$@"; times`, "bash"}, p.Args...)
	var r suite.Result
	of, err := b.observe(p.Name+", its processor time", func() (err error) {
		r, err = b.runOnce(ctx, &timed, launcher)
		return err
	})
	if err != nil {
		return 0, err
	}
	b.Timing(of)
	lines := strings.Split(strings.TrimSpace(r.Stdout), "\n")
	m := childTimes.FindStringSubmatch(lines[len(lines)-1])
	if m == nil {
		return 0, fmt.Errorf("no times in %q", lines[len(lines)-1])
	}
	total := time.Duration(0)
	for i := 1; i < len(m); i += 2 {
		t, err := time.ParseDuration(m[i] + "m" + m[i+1] + "s")
		if err != nil {
			return 0, err
		}
		total += t
	}
	return total, nil
}
