package services

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

const (
	// keptVersions is how many versions of the policies are kept, if keptBytes of
	// text have room for them: all are one value of the table.
	keptVersions = 8
	keptBytes    = 3 * MaxPolicies
	// MaxPolicies is the largest text of policies, in bytes.
	MaxPolicies = 128 << 10
)

// A Version is a text of policies that was in force, or is.
type Version struct {
	Number  int             `json:"number"`
	Name    string          `json:"name"` // of the file
	Text    string          `json:"text"`
	Applied time.Time       `json:"applied"`
	By      outboard.NodeID `json:"by"`
	// Of is the version whose text this one brought back, 0 for none.
	Of int `json:"of,omitempty"`
}

// Policies are the versions that are kept, oldest first. The last is in force;
// there may be none.
type Policies struct {
	Versions []Version `json:"versions"`

	revision uint64
}

// Current is the version in force, nil for none.
func (p Policies) Current() *Version {
	if len(p.Versions) == 0 {
		return nil
	}
	return &p.Versions[len(p.Versions)-1]
}

// previous is what a roll-back brings back: the version before the one whose text
// is in force, so that a second roll-back goes further back.
func (p Policies) previous() (Version, bool) {
	now := p.Current()
	if now == nil {
		return Version{}, false
	}
	number := now.Number
	if now.Of != 0 {
		number = now.Of
	}
	for _, v := range slices.Backward(p.Versions) {
		if v.Number < number && v.Of == 0 {
			return v, true
		}
	}
	return Version{}, false
}

// Policies is what this node knows of the policies.
func (r *Registry) Policies() Policies {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.policies
}

func (r *Registry) takePolicies(e state.Entry) (bool, error) {
	if e.Revision <= r.policies.revision {
		return false, nil
	}
	p, err := decodePolicies(e)
	if err == nil {
		r.policies = p
	}
	return err == nil, err
}

func decodePolicies(e state.Entry) (Policies, error) {
	p := Policies{revision: e.Revision}
	if e.Deleted {
		return p, nil
	}
	err := json.Unmarshal(e.Value, &p)
	return p, err
}

// Apply puts a text in force in the whole pool. The caller has checked it.
func (r *Registry) Apply(ctx context.Context, name, text string) (Version, error) {
	const op = "apply policies"
	if len(text) > MaxPolicies {
		return Version{}, outboard.Errorf(outboard.Invalid, op, "%s has %d bytes, at most %d are allowed", name, len(text), MaxPolicies)
	}
	return r.push(ctx, op, func(Policies) (Version, error) { return Version{Name: name, Text: text}, nil })
}

// Rollback puts the version before the one in force back in force.
func (r *Registry) Rollback(ctx context.Context) (Version, error) {
	const op = "roll back policies"
	return r.push(ctx, op, func(p Policies) (Version, error) {
		v, ok := p.previous()
		if !ok {
			return v, outboard.Errorf(outboard.NotFound, op, "there is no earlier version")
		}
		return Version{Name: v.Name, Text: v.Text, Of: v.Number}, nil
	})
}

// push appends a version; when somebody else was quicker it looks again.
func (r *Registry) push(ctx context.Context, op string, make func(Policies) (Version, error)) (Version, error) {
	for {
		p, err := r.readPolicies(ctx)
		if err != nil {
			return Version{}, fmt.Errorf("%s: %w", op, err)
		}
		v, err := make(p)
		if err != nil {
			return v, err
		}
		v.Number, v.Applied, v.By = 1, time.Now().UTC(), r.opts.Self
		if now := p.Current(); now != nil {
			v.Number = now.Number + 1
		}
		p.Versions = kept(append(slices.Clone(p.Versions), v))
		err = r.writePolicies(ctx, p)
		if !errors.Is(err, state.ErrConflict) {
			return v, err
		}
	}
}

// kept are the newest versions, the last one always.
func kept(versions []Version) []Version {
	room := keptBytes
	for i, v := range slices.Backward(versions) {
		room -= len(v.Text)
		if room < 0 || len(versions)-i > keptVersions {
			return versions[i+1:]
		}
	}
	return versions
}

func (r *Registry) readPolicies(ctx context.Context) (Policies, error) {
	e, err := r.opts.State.Get(ctx, policiesKey)
	if errors.Is(err, state.ErrNotFound) {
		return Policies{revision: e.Revision}, nil
	}
	if err != nil {
		return Policies{}, err
	}
	return decodePolicies(e)
}

func (r *Registry) writePolicies(ctx context.Context, p Policies) error {
	text, err := json.Marshal(p)
	if err != nil {
		return err
	}
	_, err = r.opts.State.Update(ctx, policiesKey, text, p.revision, 0)
	return err
}
