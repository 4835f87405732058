package policy

import "time"

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
	return nil
}
