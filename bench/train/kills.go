package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

// killLimit bounds the steps of an attempt that ends by a kill.
const killLimit = 12

// kills kills ranks and nodes of a job over three nodes at random, in turn, and compares its result
// with that of an undisturbed run.
func (b *bench) kills(ctx context.Context) error {
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "kills"),
		Nodes: []rig.Spec{
			{Name: "harbour", Args: jobsAllowed, Devices: "none"}, {Name: "dinghy", Args: jobsAllowed}, {Name: "ketch", Args: jobsAllowed}, {Name: "sloop", Args: jobsAllowed},
		},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	count := b.Rounds(100, 4)
	whole, err := runKilled(ctx, b, r, count, 0)
	if err != nil {
		return fmt.Errorf("the undisturbed run: %w", err)
	}
	k, err := runKilled(ctx, b, r, count, count)
	if err != nil {
		return err
	}
	what := fmt.Sprintf("%d ranks and nodes killed at random: ", count)
	b.Row(paired.NewRow(what+"the longest time until the others are told", "s", "", []float64{slices.Max(k.told)}, nil, paired.Goal{Max: 5}))
	b.Row(paired.NewRow(what+"the longest time until the job goes on", "s", "", []float64{slices.Max(k.resumed)}, nil, paired.Goal{Max: 30}))
	b.None(what+"steps before the last checkpoint that were repeated", "steps", float64(k.repeated))
	b.None(what+"results that differ from that of an undisturbed run", "results", float64(differing(k.results, whole.results)))
	b.note(fmt.Sprintf("Kills: the others were told within %.2f s and the job went on within %.2f s (medians).", paired.Median(k.told), paired.Median(k.resumed)))
	return nil
}

func differing(got, want []string) (n int) {
	for _, r := range got {
		if !slices.Contains(want, r) {
			n++
		}
	}
	return n
}

// runKilled runs scripts/kills.py, and kills as many ranks and nodes as kills says.
func runKilled(ctx context.Context, b *bench, r *rig.Rig, attempts, kills int) (*killer, error) {
	script, err := b.script("kills.py")
	if err != nil {
		return nil, err
	}
	local := &client.Client{Data: r.Node("harbour").Data()}
	k := &killer{rig: r, local: local, kills: kills, attempt: 1, at: rand.IntN(killLimit), pids: map[int]int{}}
	j, err := local.SubmitJob(ctx, client.JobSpec{
		Ranks: 3, MinRanks: 2, Restarts: attempts + 1, Args: []string{b.python, script},
		Env: map[string]string{"PER": "1", "STEPS": strconv.Itoa(killLimit*attempts + 5), "KILLS": strconv.Itoa(kills), "LIMIT": strconv.Itoa(killLimit)},
	}, func(e client.JobEvent) error {
		if e.Line == nil {
			return nil
		}
		return k.line(ctx, e.Line)
	})
	k.working.Wait()
	if err == nil && (j.State != client.JobSucceeded || len(k.results) == 0) {
		err = fmt.Errorf("the job is %s after %d attempts: %s", j.State, j.Attempt, j.Reason)
	}
	if err == nil && (j.Attempt != kills+1 || len(k.told) != kills || len(k.resumed) != kills) {
		err = fmt.Errorf("%d kills: %d attempts, %d told, %d resumed", kills, j.Attempt, len(k.told), len(k.resumed))
	}
	return k, errors.Join(err, k.failed)
}

// A killer kills ranks and nodes of a job by its lines, and measures what follows.
type killer struct {
	rig   *rig.Rig
	local *client.Client
	kills int

	attempt, at int // the attempt that is to be killed, after so many steps
	saved       int // the last checkpoint
	pids        map[int]int
	killed      time.Time // zero while nothing is lost
	lost        *rig.Node // the node that is lost, if any
	working     sync.WaitGroup
	failed      error // of starting nodes again

	told, resumed []float64 // seconds
	repeated      int       // steps before the last checkpoint
	results       []string
}

// line reads a line of the job.
func (k *killer) line(ctx context.Context, l *client.JobLine) error {
	names := strings.Contains(l.Text, "is lost") || strings.Contains(l.Text, "was killed")
	if l.Rank < 0 && names && !k.killed.IsZero() && len(k.told) < k.attempt-1 {
		k.told = append(k.told, time.Since(k.killed).Seconds())
	}
	var kind string
	var attempt, number int
	if n, _ := fmt.Sscan(l.Text, &kind, &attempt, &number); n < 3 { // It belongs to an exception.
		return nil
	}
	switch kind {
	case "pid":
		k.pids[l.Rank] = number
	case "saved":
		k.saved = max(k.saved, number)
	case "result":
		k.results = append(k.results, strconv.Itoa(number))
	case "step":
		return k.step(ctx, attempt, number)
	}
	return nil
}

func (k *killer) step(ctx context.Context, attempt, step int) error {
	if attempt == k.attempt && !k.killed.IsZero() {
		k.resumed = append(k.resumed, time.Since(k.killed).Seconds())
		k.repeated += max(0, k.saved-step)
		k.killed, k.at = time.Time{}, rand.IntN(killLimit)
		k.startAgain(ctx)
	}
	if attempt != k.attempt || attempt > k.kills || !k.killed.IsZero() {
		return nil
	}
	if k.at--; k.at >= 0 {
		return nil
	}
	k.attempt++
	if k.attempt%2 == 0 {
		return k.killRank()
	}
	return k.killNode(ctx)
}

func (k *killer) killRank() error {
	ranks := slices.Collect(maps.Keys(k.pids))
	k.killed = time.Now()
	err := syscall.Kill(k.pids[ranks[rand.IntN(len(ranks))]], syscall.SIGKILL)
	clear(k.pids)
	return err
}

// killNode kills a node with ranks.
func (k *killer) killNode(ctx context.Context) error {
	k.working.Wait() // The node that was killed before is back.
	jobs, err := k.local.Jobs(ctx)
	if err != nil {
		return err
	}
	j, err := k.local.Job(ctx, jobs[0].ID)
	if err != nil || len(j.Ranks) == 0 {
		return fmt.Errorf("the job has %d ranks, %w", len(j.Ranks), err)
	}
	clear(k.pids)
	k.lost, k.killed = k.rig.Node(string(j.Ranks[rand.IntN(len(j.Ranks))].Node)), time.Now()
	return k.lost.Kill()
}

// startAgain starts the node that was killed while the job goes on.
func (k *killer) startAgain(ctx context.Context) {
	if lost := k.lost; lost != nil {
		k.lost = nil
		k.working.Go(func() { k.failed = errors.Join(k.failed, lost.Up(ctx, jobsAllowed...)) })
	}
}
