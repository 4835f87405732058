package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/profile"
)

// profileVariable names the file in which the Python package writes a profile.
const profileVariable = "OUTBOARD_PROFILE"

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

// printProfile prints where the time and the memory of a pass went, from the file that rank 0 has
// written: as tables, or as JSON on the standard output.
func (env *Env) printProfile(path string, output format) error {
	p, err := profile.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return outboard.Errorf(outboard.NotFound, "profile",
			"rank 0 has written none: the program must import outboard.torch, call a model with gradients, and end by itself")
	}
	if err != nil {
		return err
	}
	if output == "json" {
		return output.print(env, p, nil, nil)
	}
	printSafe(env.Stderr, "\noutboard: a pass of rank 0 took %s (median of %d); %s\n", secondsText(p.Where.Seconds), p.Passes, path)
	if err := env.printTimes(p); err != nil {
		return err
	}
	return env.printMemory(&p.Memory)
}

// printTimes prints where the time of a pass went, and the times of layers.
func (env *Env) printTimes(p *profile.Profile) error {
	if err := writeTable(env.Stderr, "", []string{"WHERE", "TIME", "OF A PASS"}, whereRows(p.Where)); err != nil {
		return err
	}
	printSafe(env.Stderr, "\n")
	var rows [][]string
	for _, l := range p.Layers {
		rows = append(rows, []string{
			l.Name, secondsText(l.Forward), secondsText(l.Backward), outboard.Bytes(l.Parameters).String(), outboard.Bytes(l.Output).String(),
		})
	}
	if err := writeTable(env.Stderr, "", []string{"LAYER", "FORWARD", "BACKWARD", "PARAMETERS", "OUTPUT OF A SAMPLE"}, rows); err != nil {
		return err
	}
	if s := p.Saved; s != nil {
		printSafe(env.Stderr, "\na step saved %d tensors of %v: %v on the device at most, %v moved to the host, %v to the disk\n",
			s.Tensors, outboard.Bytes(s.Bytes), outboard.Bytes(s.Peak), outboard.Bytes(s.Host), outboard.Bytes(s.Disk))
	}
	return nil
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
	j.Plan.Layers = p.Layers
	return nil
}
