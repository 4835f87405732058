package serve

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/repository"
)

// A canary is a version that gets some of a model's requests, with this node's counts of them.
type canary struct {
	number   int    // of the version
	requests uint64 // for text, which are divided where they are accepted
	// own and before are the outcomes of the canary and of the preceding version.
	own, before outcomes
	reverting   bool
	// abandoned is set when this node could not revert the canary, for example because it may not
	// change the model. It then leaves all requests to the preceding version.
	abandoned bool
}

// outcomes count the requests of a canary or of its preceding version on this node.
type outcomes struct{ requests, failed uint64 }

// canaryFailures is the number of requests of a canary that must fail before it is rolled back.
// They must also be a tenth of its requests, and its share of failures twice that of the preceding
// version.
const canaryFailures = 5

func (o *outcomes) isWorseThan(before *outcomes) bool {
	return o.failed >= canaryFailures && 10*o.failed >= o.requests && o.failed*before.requests >= 2*before.failed*o.requests
}

// isFault reports whether an error is the fault of a version. A wrong request, a full queue, an
// expired deadline and a client that disconnected are not; inferRefused finds out whether a request
// is wrong for the canary alone.
func isFault(ctx context.Context, err error) bool {
	if err == nil || ctx.Err() != nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return false
	}
	kind := outboard.KindOf(err)
	return kind == outboard.Other || kind == outboard.Unreachable || kind == outboard.Protocol
}

// isCanary reports whether a version in force gets only some of the requests.
func isCanary(v *repository.Version) bool { return v.Canary > 0 && v.Canary < 100 }

// isForCanary reports whether the n-th request belongs to a canary. Its requests are spread evenly:
// percent of any 100 consecutive requests.
func isForCanary(n uint64, percent int) bool { return n*uint64(percent)%100 < uint64(percent) }

// canaryOf returns the counts of a canary. mu must be held.
func canaryOf(s *Server, v *repository.Version) *canary {
	c := s.canaries[v.Name]
	if c == nil || c.number != v.Number {
		c = &canary{number: v.Number}
		s.canaries[v.Name] = c
	}
	return c
}

// isAbandoned reports whether this node leaves all requests to the version before a canary. mu must
// be held.
func isAbandoned(s *Server, v *repository.Version) bool {
	c := s.canaries[v.Name]
	return c != nil && c.number == v.Number && c.abandoned
}

// beforeCanary returns the version that gets the requests that a canary does not get, nil if there
// is none.
func beforeCanary(s *Server, v *repository.Version) *repository.Version {
	m, err := s.opts.Repository.Get(v.Name)
	if err != nil {
		return nil
	}
	for n := len(m.Versions) - 2; n >= 0; n-- {
		if before := &m.Versions[n]; keyOf(before) != keyOf(v) {
			return before
		}
	}
	return nil
}

// chooseVersion divides generations between a canary, v, and the preceding version. number is "" if
// there is no canary: then the version that serves at present executes the generation.
func chooseVersion(s *Server, v *repository.Version) (chosen *repository.Version, number string) {
	if !isCanary(v) {
		return v, ""
	}
	chosen = v
	before := beforeCanary(s, v)
	s.mu.Lock()
	defer s.mu.Unlock()
	c := canaryOf(s, v)
	c.requests++
	if before != nil && (c.abandoned || !isForCanary(c.requests, v.Canary)) {
		chosen = before
	}
	return chosen, strconv.Itoa(chosen.Number)
}

// countOutcome counts a request of the version in force, v, or of the preceding one, which got it
// because v is a canary. It reverts a canary that fails more often than the preceding version.
func countOutcome(s *Server, v *repository.Version, before, fault bool) {
	if !isCanary(v) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	c := canaryOf(s, v)
	o := &c.own
	if before {
		o = &c.before
	}
	o.requests++
	if fault {
		o.failed++
	}
	revertIfWorse(s, v, c)
}

// revertIfWorse begins to revert a canary that fails more often than the preceding version. mu must
// be held.
func revertIfWorse(s *Server, v *repository.Version, c *canary) {
	if s.closed || c.reverting || !c.own.isWorseThan(&c.before) {
		return
	}
	c.reverting = true
	failed, requests := c.own.failed, c.own.requests
	s.serving.Go(func() { revertCanary(s, v.Name, v.Number, failed, requests) })
}

// inferRefused executes a request that an instance, of a canary, has refused as invalid, with the
// preceding version. If that version accepts the request, the refusal counts as a failure of the
// canary, which then takes other inputs than the model's clients send. Otherwise the request is
// wrong, and the result is the canary's error, refusal.
func inferRefused(ctx context.Context, s *Server, i *instance, r *Request, v *repository.Version, refusal error) (*Response, error) {
	other := acquireOther(s, i)
	if other == nil {
		return nil, refusal
	}
	defer other.release()
	response, err := inferOn(ctx, s, other, r, v)
	if err != nil {
		return nil, refusal
	}
	if isCanary(v) && i.key == keyOf(v) { // it may have been reverted in the meantime
		countRefusal(s, v)
	}
	return response, nil
}

// acquireOther returns the instance that may accept what another one has refused, counted as in use:
// that of the version that precedes a canary, or that which has replaced the instance since. It is
// nil if there is none that is ready.
func acquireOther(s *Server, i *instance) *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.routes[i.key.name]
	if r == nil || r.previous == i {
		return nil
	}
	other := r.current
	if other == i {
		if other = r.previous; r.canary == 0 || other == nil {
			return nil
		}
	}
	other.acquire()
	if !isUsable(other) {
		other.release()
		return nil
	}
	return other
}

// countRefusal counts as failed a request of a canary, v, that countOutcome has counted already.
func countRefusal(s *Server, v *repository.Version) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := canaryOf(s, v)
	c.own.failed++
	revertIfWorse(s, v, c)
}

// revertLimit bounds the time to revert a canary in the pool's state.
const revertLimit = time.Minute

func revertCanary(s *Server, name string, number int, failed, requests uint64) {
	ctx, cancel := context.WithTimeout(s.life, revertLimit)
	defer cancel()
	back, err := s.opts.Repository.RevertCanary(ctx, name, number)
	if err != nil {
		s.mu.Lock()
		if c := s.canaries[name]; c != nil && c.number == number {
			c.abandoned = true
		}
		s.mu.Unlock()
		s.log.Error("a canary was not taken back, and gets no more requests of this node", "model", name, "version", number, "error", err)
		return
	}
	s.metrics.reverted.WithLabelValues(name).Inc()
	s.log.Error("a canary was taken back", "model", name, "version", number, "failed", failed, "requests", requests, "now", back.Number, "as", back.Of)
}

// outcomeCounter is a model for text whose generations are counted for a canary.
type outcomeCounter struct {
	engine.TextModel
	count func(fault bool)
}

// Generate implements engine.TextModel. An error of emit is the client's.
func (j *outcomeCounter) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	var gone error
	usage, err := j.TextModel.Generate(ctx, g, func(t engine.Token) error {
		gone = emit(t)
		return gone
	})
	j.count(gone == nil && isFault(ctx, err))
	return usage, err
}
