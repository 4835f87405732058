// Package profile reads measured profiles of training programs: the times and sizes of layers, and
// where the time and the memory of a pass go. python/outboard/profile.py writes them.
package profile

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/plan"
)

// Version is the version of the files that Read reads.
const Version = 1

// MaxSize bounds a profile in bytes.
const MaxSize = 64 << 20

const maxLayers = 100_000

// A Profile holds the measurements of a rank, the first one that has sent a profile. Times are
// medians over Passes.
type Profile struct {
	Version int `json:"version"`
	// Passes is the number of measured passes: from a call of the model to the next one.
	Passes int `json:"passes"`
	// Threads is the number of threads with which the layers were measured, 0 if it is not known.
	Threads int    `json:"threads,omitempty"`
	Where   Where  `json:"where"`
	Memory  Memory `json:"memory"`
	// Saved describes the last step whose saved tensors were moved; nil without `outboard train
	// --offload`.
	Saved *Saved `json:"saved"`
	// Layers are in the order of the forward pass; times and sizes are those of a sample.
	Layers []plan.Layer `json:"layers"`
	// Ranks has a summary of each rank, in order.
	Ranks []Summary `json:"ranks,omitempty"`
}

// Where divides the time of one pass, in seconds. Communication and loading may overlap the other
// times.
type Where struct {
	Seconds       float64 `json:"seconds"` // the whole pass
	Forward       float64 `json:"forward"`
	Backward      float64 `json:"backward"`
	Communication float64 `json:"communication"`
	Loading       float64 `json:"loading"` // in the iterator of a DataLoader
	// Waiting is the part of the forward and backward time in which the pass waited until saved
	// tensors were moved.
	Waiting float64 `json:"waiting"`
}

// Other returns the part of the pass that belongs neither to the model nor to loading: the
// optimizer, and the program's own work.
func (w Where) Other() float64 { return max(0, w.Seconds-w.Forward-w.Backward-w.Loading) }

// Saved describes the tensors that a step saved for its backward pass, in bytes.
type Saved struct {
	Tensors int     `json:"tensors"`
	Bytes   float64 `json:"bytes"`
	// Peak is the most bytes on the device, Host and Disk are the bytes moved there.
	Peak float64 `json:"peak"`
	Host float64 `json:"host"`
	Disk float64 `json:"disk"`
}

// ReadFile reads the profile of a file.
func ReadFile(path string) (*Profile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	p, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

// Read reads a profile, and refuses one that is truncated, too large or of another version.
func Read(r io.Reader) (*Profile, error) {
	text, err := io.ReadAll(io.LimitReader(r, MaxSize+1))
	if err != nil {
		return nil, err
	}
	if len(text) > MaxSize {
		return nil, fmt.Errorf("a profile of more than %v", outboard.Bytes(MaxSize))
	}
	var p Profile
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, fmt.Errorf("no profile: %w", err)
	}
	return &p, p.check()
}

func (p *Profile) check() error {
	switch {
	case p.Version != Version:
		return fmt.Errorf("a profile of version %d: this program reads version %d, which `outboard train --profile` writes", p.Version, Version)
	case len(p.Layers) == 0:
		return errors.New("a profile without layers: the program has called no module of PyTorch with gradients")
	case len(p.Layers) > maxLayers:
		return fmt.Errorf("a profile of %d layers, at most %d", len(p.Layers), maxLayers)
	}
	w := p.Where
	for name, v := range map[string]float64{
		"seconds": w.Seconds, "forward": w.Forward, "backward": w.Backward, "communication": w.Communication, "loading": w.Loading, "waiting": w.Waiting,
	} {
		if !(v >= 0) {
			return fmt.Errorf("where: %s is %v", name, v)
		}
	}
	return p.Memory.check()
}
