package policy

import (
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// persistent is a step that applies to a stream for as long as it runs, also in the process
// that it moves to.
type persistent interface {
	step
	resume(x *Exchange)
}

// resume admits a stream that another process admitted when it began. Policies about its beginning
// (access, rates, faults, retries) do not apply again; persistent policies do. The stream is
// refused if a policy needs its first message.
func (c *Chain) resume(x *Exchange) error {
	for _, p := range c.policies {
		s, ok := p.step.(persistent)
		if !ok {
			continue
		}
		if p.request {
			return c.refuse(x, status.Errorf(codes.FailedPrecondition, "policy %s depends on the first message: the stream stays where it is", p.name))
		}
		if p.when != nil {
			if yes, err := p.when.bool(x); err != nil || !yes {
				continue
			}
		}
		s.resume(x)
	}
	return nil
}

// resume counts the stream even if that exceeds the limit: the stream is already under way.
func (s *concurrencyStep) resume(x *Exchange) {
	if s.per.by == perAll {
		s.state.all.here.Add(1)
		x.acquisitions = append(x.acquisitions, acquisition{owner: s, state: (*entry[inFlightCalls])(nil)})
		return
	}
	key, err := s.per.key(x)
	if err != nil {
		return // not counted, as in the process where it began
	}
	e := s.state.keys.pin(key, x.Now)
	e.value.here.Add(1)
	x.acquisitions = append(x.acquisitions, acquisition{owner: s, state: e})
}

func (s *linkStep) resume(x *Exchange) { x.Plan.Links = append(x.Plan.Links, &s.link) }

func (s *logStep) resume(x *Exchange) { x.acquisitions = append(x.acquisitions, acquisition{owner: s}) }

// resume rewrites the metadata that the callee sends from now on.
func (s *rewriteStep) resume(x *Exchange) {
	if s.responds() {
		x.Plan.Rewrites = true
		x.responseSteps = append(x.responseSteps, s)
	}
}
