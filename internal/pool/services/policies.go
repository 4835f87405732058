package services

import (
	"cmp"
	"context"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/versions"
)

const (
	// keptVersions is the number of versions of the policies that are kept if they fit into
	// keptBytes of text: the table stores all of them as one value.
	keptVersions = 8
	keptBytes    = 3 * MaxPolicies
	// MaxPolicies is the largest text of policies, in bytes.
	MaxPolicies = 128 << 10
)

// A Version is a text of policies that is or was in force.
type Version struct {
	Number  int             `json:"number"`
	Name    string          `json:"name"` // of the file
	Text    string          `json:"text"`
	Applied time.Time       `json:"applied"`
	By      outboard.NodeID `json:"by"`
	// Of is the version whose text this one brought back, 0 for none.
	Of int `json:"of,omitempty"`
}

// Numbers implements versions.Version.
func (v *Version) Numbers() (own, of int) { return v.Number, v.Of }

// Stamp implements versions.Version.
func (v *Version) Stamp(number int, at time.Time, by outboard.NodeID) {
	v.Number, v.Applied, v.By = number, at, by
}

// Size implements versions.Version.
func (v *Version) Size() int { return len(v.Text) }

// Policies is the history of the pool's policies.
type Policies = versions.History[Version, *Version]

// Policies returns the history of the policies in this node's view.
func (r *Registry) Policies() Policies {
	r.view.Lock()
	defer r.view.Unlock()
	return r.policies
}

func (r *Registry) applyPolicies(e state.Entry) (bool, error) {
	if e.Revision <= r.policies.Revision {
		return false, nil
	}
	p, err := versions.Decode[Version](e)
	if err == nil {
		r.policies = p
	}
	return err == nil, err
}

func (r *Registry) history() versions.Keeper[Version, *Version] {
	return versions.Keeper[Version, *Version]{
		State: r.opts.State, Key: policiesKey, Self: r.opts.Self, Versions: keptVersions, Bytes: keptBytes,
	}
}

// Apply puts a text in force in the whole pool. The caller has validated it.
func (r *Registry) Apply(ctx context.Context, name, text string) (Version, error) {
	const op = "apply policies"
	if len(text) > MaxPolicies {
		return Version{}, outboard.Errorf(outboard.Invalid, op, "%s has %d bytes, at most %d are allowed", name, len(text), MaxPolicies)
	}
	v, err := r.history().Push(ctx, op, func(Policies) (Version, error) { return Version{Name: name, Text: text}, nil })
	return v, explainDenied(op, err)
}

// Rollback puts the version before the one in force back in force.
func (r *Registry) Rollback(ctx context.Context) (Version, error) {
	const op = "roll back policies"
	v, err := r.history().Push(ctx, op, func(p Policies) (Version, error) {
		v, ok := p.Previous()
		if !ok {
			return v, outboard.Errorf(outboard.NotFound, op, "there is no earlier version")
		}
		return Version{Name: v.Name, Text: v.Text, Of: cmp.Or(v.Of, v.Number)}, nil
	})
	return v, explainDenied(op, err)
}

// explainDenied tells the user where policies can be changed.
func explainDenied(op string, err error) error {
	if outboard.KindOf(err) != outboard.Denied {
		return err
	}
	return outboard.Errorf(outboard.Denied, op,
		"policies are the whole pool's, and this node keeps no copy of the pool's state: run the command on one that does, see `outboard nodes`")
}
