package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/suite"
)

func (b *bench) ffmpeg(ctx context.Context) error {
	filters := []string{"avgblur_opencl", "unsharp_opencl"}
	if b.Quick {
		filters = filters[:1]
	}
	for _, filter := range filters {
		goals := map[string]paired.Goal{shared: {MaxRatio: 1.15}, network: {MaxRatio: 1.35}}
		// A few frames need the same kernels as many.
		if err := b.compare(ctx, suite.FFmpeg(filter, 2), suite.FFmpeg(filter, b.Rounds(100, 30)), b.Rounds(5, 1), goals); err != nil {
			return err
		}
	}
	return nil
}

// programs measures whole programs. A quick run leaves them out: compiling their kernels takes
// longer than all its measurements.
func (b *bench) programs(ctx context.Context) error {
	if b.Quick {
		b.Report.Notes = append(b.Report.Notes, "CLBlast, clpeak and hashcat were not measured: a quick run has no time to compile their kernels.")
		return nil
	}
	goals := map[string]paired.Goal{shared: {MaxRatio: 1.3}, network: {}}
	for _, p := range []suite.Program{suite.CLBlast("xaxpy"), suite.CLBlast("xdot")} {
		if err := b.compare(ctx, p, p, 3, goals); err != nil {
			return err
		}
	}
	for _, p := range []suite.Program{suite.CLBlast("xgemm"), suite.CLPeak(), suite.Hashcat()} {
		if err := b.compare(ctx, p, p, 1, map[string]paired.Goal{shared: {MaxRatio: 1.3}}); err != nil {
			return err
		}
	}
	return nil
}

// reasons explain why programs may miss their goals.
var reasons = map[string]string{
	"clblast xgemm": "The program makes more than 300,000 calls, which take 600 MB to the device and 200 MB back: what it takes longer is 8 us for each.",
}

// compare times whole runs of p in turn, and fails when a borrowed run has another result. Before
// that, warmUp compiles the kernels that p needs, in every cache: a cold cache is never compared
// with a warm one.
func (b *bench) compare(ctx context.Context, warmUp, p suite.Program, rounds int, goals map[string]paired.Goal) error {
	homes, err := b.homes()
	if err != nil {
		return err
	}
	if _, err := b.runInTurn(ctx, warmUp, homes, goals); err != nil {
		return err
	}
	if err := b.rig.Node("harbour").WaitIdle(ctx); err != nil {
		return err
	}
	walls := map[string][]float64{}
	for range rounds {
		seconds, err := b.runInTurn(ctx, p, homes, goals)
		if err != nil {
			return err
		}
		for way, s := range seconds {
			walls[way] = append(walls[way], s)
		}
	}
	for _, way := range []string{shared, network} {
		if goal, ok := goals[way]; ok {
			b.Row(paired.NewRow(p.Name+", wall time, "+way+" (same result)", "s", local, walls[way], walls[local], goal).Because(reasons[p.Name]))
		}
	}
	return nil
}

// runInTurn runs p once over the local driver and once over each path that has a goal, and returns
// the wall time of each, in seconds.
func (b *bench) runInTurn(ctx context.Context, p suite.Program, homes map[string]string, goals map[string]paired.Goal) (map[string]float64, error) {
	first := p.Run(ctx, suite.Local, homes[local])
	seconds := map[string]float64{local: first.Wall.Seconds()}
	for way := range goals {
		res := p.Run(ctx, b.launcher(way), homes[way])
		if err := p.Compare(first, res); err != nil {
			return nil, fmt.Errorf("%s over %s: %w", p.Name, way, err)
		}
		seconds[way] = res.Wall.Seconds()
	}
	return seconds, nil
}

func (b *bench) homes() (map[string]string, error) {
	homes := map[string]string{}
	for _, way := range []string{local, shared, network} {
		home, err := os.MkdirTemp(b.Dir, "home-")
		if err != nil {
			return nil, err
		}
		homes[way] = home
	}
	return homes, nil
}

// cuts takes dinghy's link down while programs wait in a blocking call, and counts the programs
// whose call returned an error within 5 s.
func (b *bench) cuts(ctx context.Context) error {
	if b.rig.Node("dinghy").Cut(ctx, false) != nil {
		b.Report.Notes = append(b.Report.Notes, "The cut link was not measured: it needs network namespaces.")
		return nil //nolint:nilerr // noted above
	}
	const batch = 10
	var seconds []float64
	for range b.Rounds(10, 1) {
		got, err := b.cutOnce(ctx, batch)
		if err != nil {
			return err
		}
		seconds = append(seconds, got...)
	}
	row := paired.NewRow(fmt.Sprintf("link cut with a blocking call in flight: %d of %d calls ended with an error", len(seconds), b.Rounds(10, 1)*batch),
		"s", "", seconds, nil, paired.Goal{Max: 5})
	row.Holds = len(seconds) == b.Rounds(10, 1)*batch && row.Spread[1] <= 5
	b.Row(row)
	return nil
}

func (b *bench) cutOnce(ctx context.Context, count int) ([]float64, error) {
	node := b.rig.Node("dinghy")
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var ready, done sync.WaitGroup
	var mu sync.Mutex
	var seconds []float64
	for i := range count {
		cmd := borrowing(node, "--memory", "16MiB", "--timeout", "50s")(ctx, filepath.Join(b.Dir, "hold"), []string{"finish", "read"}[i%2])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
		ready.Add(1)
		done.Go(func() {
			if s, err := measureCut(cmd, ready.Done); err == nil {
				mu.Lock()
				defer mu.Unlock()
				seconds = append(seconds, s)
			}
		})
	}
	ready.Wait()
	if err := node.Cut(ctx, true); err != nil {
		return nil, err
	}
	cut := time.Now()
	done.Wait()
	fmt.Fprintf(os.Stderr, "  all calls were back %.1f s after the cut\n", time.Since(cut).Seconds())
	return seconds, node.Cut(ctx, false)
}

// measureCut runs `hold` and returns the time from the cut to the end of its call in seconds, or a
// little more.
func measureCut(cmd *exec.Cmd, ready func()) (float64, error) {
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		ready()
		return 0, err
	}
	lines := bufio.NewScanner(stdout)
	holding := lines.Scan() && lines.Text() == "holding"
	since := time.Now()
	ready()
	var code int
	var seconds float64
	if holding && lines.Scan() {
		_, err = fmt.Sscanf(lines.Text(), "ended %d %f", &code, &seconds)
	}
	_ = cmd.Wait() // its status reports that the session was lost
	if !holding || err != nil || code >= 0 {
		return 0, fmt.Errorf("hold did not end with an error: %w", err)
	}
	// The call may have begun before the cut.
	return min(seconds, time.Since(since).Seconds()), nil
}
