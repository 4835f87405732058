package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/train/profile"
)

// A rankProfiles collects the profiles of ranks.
type rankProfiles struct {
	mu   sync.Mutex
	list []profile.Rank
}

// keep adds the profile of a rank of this machine. The last one of a rank counts.
func (p *rankProfiles) keep(_ context.Context, f *os.File, rank int) error {
	r, err := profile.ReadRank(f, rank)
	if err == nil {
		p.add(r)
	}
	return err
}

func (p *rankProfiles) add(r profile.Rank) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.list = slices.DeleteFunc(p.list, func(old profile.Rank) bool { return old.Rank == r.Rank })
	p.list = append(p.list, r)
}

// fetch adds the profiles of a job of the pool.
func (p *rankProfiles) fetch(ctx context.Context, env *Env, id string) error {
	return env.client().JobProfiles(ctx, id, func(r client.JobProfile) error {
		p.add(profile.Rank{Rank: r.Rank, Node: string(r.Node), Text: r.Profile})
		return nil
	})
}

// write writes the profiles as one file.
func (p *rankProfiles) write(path string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.list) == 0 {
		return outboard.Errorf(outboard.NotFound, "profile",
			"no rank has sent one: the program must import outboard.torch, call a model with gradients, and end by itself")
	}
	text, err := profile.Merge(p.list)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	aside := path + ".part"
	if err := os.WriteFile(aside, text, 0o644); err != nil {
		return err
	}
	return os.Rename(aside, path)
}

// prepareProfile returns the absolute path of a profile to be written, and removes the profile of
// an earlier run.
func prepareProfile(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", usage("--profile: %w", err)
	}
	if info, err := os.Stat(filepath.Dir(path)); err != nil || !info.IsDir() {
		return "", usage("--profile %s: there is no such folder", path)
	}
	return path, nil
}

// finish writes the profiles to a file and prints where the time and the memory of a pass went: as
// tables, or as JSON on the standard output.
func (p *rankProfiles) finish(env *Env, path string, output format) error {
	if err := p.write(path); err != nil {
		return err
	}
	return printProfile(env, path, output)
}

// printProfile prints the profile of a file.
func printProfile(env *Env, path string, output format) error {
	p, err := profile.ReadFile(path)
	if err != nil {
		return err
	}
	if output == "json" {
		return output.print(env, p, nil, nil)
	}
	first := 0
	if len(p.Ranks) > 0 {
		first = p.Ranks[0].Rank
	}
	printSafe(env.Stderr, "\noutboard: a pass of rank %d took %s (median of %d); %s\n", first, secondsText(p.Where.Seconds), p.Passes, path)
	if err := printTimes(env, p); err != nil {
		return err
	}
	if err := printMemory(env, &p.Memory); err != nil || len(p.Ranks) < 2 {
		return err
	}
	printSafe(env.Stderr, "\n")
	return writeTable(env.Stderr, "", []string{"RANK", "NODE", "PASS", "FORWARD", "BACKWARD", "LOADING", "COMMUNICATION", "PEAK", "OF TENSORS"}, rankRows(p.Ranks))
}

// rankRows returns the times of a pass, and the memory, of each rank.
func rankRows(ranks []profile.Summary) (rows [][]string) {
	for _, r := range ranks {
		w, tensors := r.Where, "-"
		if t := r.Memory.Tensors; t != nil {
			tensors = outboard.Bytes(t.Peak).String()
		}
		rows = append(rows, []string{
			strconv.Itoa(r.Rank), orDash(r.Node), secondsText(w.Seconds), secondsText(w.Forward), secondsText(w.Backward),
			secondsText(w.Loading), secondsText(w.Communication), outboard.Bytes(r.Memory.Peak).String(), tensors,
		})
	}
	return rows
}

// printTimes prints where the time of a pass went, and the times of layers.
func printTimes(env *Env, p *profile.Profile) error {
	if err := writeTable(env.Stderr, "", []string{"WHERE", "TIME", "OF A PASS"}, whereRows(p.Where)); err != nil {
		return err
	}
	printSafe(env.Stderr, "\n")
	var rows [][]string
	for _, l := range p.Layers {
		rows = append(rows, []string{
			l.Name, layerText(l.Forward), layerText(l.Backward), outboard.Bytes(l.Parameters).String(), outboard.Bytes(l.Output).String(),
		})
	}
	head := []string{"LAYER", "FORWARD OF A SAMPLE", "BACKWARD OF A SAMPLE", "PARAMETERS", "OUTPUT OF A SAMPLE"}
	if err := writeTable(env.Stderr, "", head, rows); err != nil {
		return err
	}
	if s := p.Saved; s != nil {
		printSafe(env.Stderr, "\na step saved %d tensors of %v: %v on the device at most, %v moved to the host, %v to the disk\n",
			s.Tensors, outboard.Bytes(s.Bytes), outboard.Bytes(s.Peak), outboard.Bytes(s.Host), outboard.Bytes(s.Disk))
	}
	return nil
}

// layerText returns the time that a layer takes for one sample, which may be far below a microsecond.
func layerText(seconds float64) string {
	if seconds < 1e-3 {
		return durationText(seconds, 10*time.Nanosecond)
	}
	return secondsText(seconds)
}

func whereRows(w profile.Where) (rows [][]string) {
	type row struct {
		name    string
		seconds float64
	}
	list := []row{
		{"forward", w.Forward},
		{"backward", w.Backward},
		{"loading", w.Loading},
		{"other (optimizer, program)", w.Other()},
		{"communication (beside these)", w.Communication},
	}
	if w.Waiting > 0 {
		list = append(list, row{"waiting for saved tensors (in these)", w.Waiting})
	}
	for _, r := range list {
		share := 0.0
		if w.Seconds > 0 {
			share = 100 * r.seconds / w.Seconds
		}
		rows = append(rows, []string{r.name, secondsText(r.seconds), strconv.FormatFloat(share, 'f', 1, 64) + " %"})
	}
	return rows
}

// profileLayers sets the layers of a plan from the profile that the job's file names.
func (j *jobFile) profileLayers(folder string) error {
	if j.Profile == "" || j.Plan == nil || len(j.Plan.Layers) > 0 {
		return nil
	}
	path := j.Profile
	if !filepath.IsAbs(path) {
		path = filepath.Join(folder, path)
	}
	p, err := profile.ReadFile(path)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	j.Plan.Layers, j.profiledThreads = p.Layers, p.Threads
	return nil
}
