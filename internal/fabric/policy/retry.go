package policy

import (
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

type retryRules struct {
	attempts int
	codes    []codes.Code
	base     time.Duration
	most     time.Duration
	factor   float64
	jitter   float64
	budget   budgetRules
}

type retryStep struct {
	*retryRules
	policy *policy
	budget *budget
	retry  Retry
}

func (r *retryRules) bind(p *policy, old step, _ time.Time) step {
	s := &retryStep{retryRules: r, policy: p, budget: &budget{}}
	if o, ok := old.(*retryStep); ok {
		s.budget = o.budget
	}
	s.retry = Retry{Attempts: r.attempts, Codes: r.codes, step: s}
	return s
}

func (s *retryStep) apply(x *Exchange) error {
	s.budget.deposit(s.retryRules.budget.ratio)
	x.Plan.Retry = &s.retry
	return nil
}

func (s *retryStep) next(x *Exchange, attempts int, err error) (time.Duration, bool) {
	if attempts >= s.attempts || !slices.Contains(s.codes, status.Code(err)) {
		return 0, false
	}
	if !s.budget.withdraw(s.retryRules.budget.reserve) {
		return 0, false
	}
	s.policy.recordAction(x)
	return s.backoff(x, attempts), true
}

// backoff returns the exponential back-off after a number of attempts, with jitter.
func (s *retryStep) backoff(x *Exchange, attempts int) time.Duration {
	wait := float64(s.base)
	for range attempts - 1 {
		if wait *= s.factor; wait >= float64(s.most) {
			break
		}
	}
	wait = min(wait, float64(s.most))
	return time.Duration(wait * (1 - s.jitter*x.uniform()))
}

type hedgeRules struct {
	after    time.Duration
	attempts int
	codes    []codes.Code
	budget   budgetRules
}

type hedgeStep struct {
	*hedgeRules
	policy *policy
	budget *budget
	hedge  Hedge
}

func (r *hedgeRules) bind(p *policy, old step, _ time.Time) step {
	s := &hedgeStep{hedgeRules: r, policy: p, budget: &budget{}}
	if o, ok := old.(*hedgeStep); ok {
		s.budget = o.budget
	}
	s.hedge = Hedge{Attempts: r.attempts, After: r.after, Codes: r.codes, step: s}
	return s
}

func (s *hedgeStep) apply(x *Exchange) error {
	if x.Head.Streaming {
		return x.streamError()
	}
	s.budget.deposit(s.hedgeRules.budget.ratio)
	x.Plan.Hedge = &s.hedge
	return nil
}

func (s *hedgeStep) next(x *Exchange, attempts int) bool {
	if attempts >= s.attempts || !s.budget.withdraw(s.hedgeRules.budget.reserve) {
		return false
	}
	s.policy.recordAction(x)
	return true
}
