package policy

import (
	"time"

	"google.golang.org/grpc/codes"
)

// timeoutRules bounds the duration of calls.
type timeoutRules struct{ timeout time.Duration }

type timeoutStep struct {
	timeout time.Duration
	policy  *policy
}

func (r *timeoutRules) bind(p *policy, _ step, _ time.Time) step {
	return &timeoutStep{r.timeout, p}
}

func (s *timeoutStep) apply(x *Exchange) error {
	if p := &x.Plan; p.Timeout == 0 || s.timeout < p.Timeout {
		p.Timeout = s.timeout
	}
	x.acquisitions = append(x.acquisitions, acquisition{owner: s})
	return nil
}

// release counts a call that this timeout has ended, and not an earlier deadline of the caller. The
// callee, on another clock, may notice the end a little earlier.
func (s *timeoutStep) release(x *Exchange, _ acquisition, o Outcome) {
	const earlier = 16 // a part of the timeout
	if s.timeout == x.Plan.Timeout && o.Code() == codes.DeadlineExceeded && o.Now.Sub(x.Now) >= s.timeout-s.timeout/earlier {
		s.policy.recordAction(x)
	}
}
