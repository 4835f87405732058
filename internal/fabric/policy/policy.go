package policy

import (
	"errors"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// policy is one entry of a policy file, bound to its state.
type policy struct {
	name, kind string
	line       int
	applies    selector
	when       *expression
	deny       bool // reject a call for which the policy cannot be evaluated
	rules      rules
	request    bool
	selections map[int]selection // fields that expressions read, by the number of the request type
	step       step
	counts     *counts
}

// rules is the immutable configuration of a policy, one type per kind.
type rules interface {
	// bind returns the step that executes the rules. It takes over the state of old, the step
	// of the same policy in the previous set; old may be nil.
	bind(p *policy, old step, now time.Time) step
}

// step applies one policy to a call.
type step interface {
	// apply returns nil, the rejection as an error of package status, or an *evaluationError.
	apply(x *Exchange) error
}

// releaser is a step that holds a resource for the duration of a call.
type releaser interface {
	release(x *Exchange, h acquisition, o Outcome)
}

type counts struct{ calls, acted, refused, failed atomic.Uint64 }

// evaluationError reports that a step could not be evaluated; the policy's failure mode
// decides about the call.
type evaluationError struct{ err error }

func (b *evaluationError) Error() string { return b.err.Error() }
func (b *evaluationError) Unwrap() error { return b.err }

func (p *policy) withState(old *policy, now time.Time) *policy {
	b := *p
	b.counts = &counts{}
	var left step
	if old != nil {
		b.counts, left = old.counts, old.step
	}
	b.step = p.rules.bind(&b, left, now)
	return &b
}

func (p *policy) apply(x *Exchange) error {
	if p.when != nil {
		if yes, err := p.when.bool(x); err != nil {
			return p.fail(x, err)
		} else if !yes {
			return nil
		}
	}
	p.counts.calls.Add(1)
	err := p.step.apply(x)
	if err == nil {
		return nil
	}
	if b := (*evaluationError)(nil); errors.As(err, &b) {
		return p.fail(x, b.err)
	}
	p.counts.refused.Add(1)
	p.recordAction(x)
	return err
}

// fail applies the failure mode of a policy that could not be evaluated.
func (p *policy) fail(x *Exchange, err error) error {
	p.counts.failed.Add(1)
	if !p.deny {
		return nil
	}
	p.recordAction(x)
	if s, ok := status.FromError(err); ok {
		return status.Errorf(s.Code(), "policy %s: %s", p.name, s.Message())
	}
	return status.Errorf(codes.Internal, "policy %s: %v", p.name, err)
}

// recordAction counts a call that the policy changed, rejected or planned.
func (p *policy) recordAction(x *Exchange) {
	p.counts.acted.Add(1)
	x.Plan.Acted = append(x.Plan.Acted, p.name)
}

func (p *policy) info() Info {
	i := Info{
		Name: p.name, Kind: p.kind, Line: p.line, Request: p.request,
		Services: p.applies.services.texts(), Methods: p.applies.methods.texts(), Tenants: p.applies.tenants.texts(),
		Calls: p.counts.calls.Load(), Acted: p.counts.acted.Load(),
		Refused: p.counts.refused.Load(), Failed: p.counts.failed.Load(),
	}
	if p.when != nil {
		i.When = p.when.text
	}
	return i
}
