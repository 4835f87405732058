package router

import (
	"context"
	"errors"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// hedgedCall is a call with attempts in parallel, of which the first good answer wins. The
// goroutine of the call owns it; each attempt runs in its own goroutine, which may outlive the
// call until its cancellation takes effect.
type hedgedCall struct {
	c       *exchange
	hedge   *policy.Hedge
	copier  *sharedMessage
	answers chan answer               // unbuffered: each answer that is sent is received
	over    <-chan struct{}           // closed when answers has no receiver any more
	ctx     context.Context           //nolint:containedctx // the attempts'
	cancels []context.CancelCauseFunc // of the attempts, by number
	running int
	sent    int
	last    answer // the last failed answer
}

// errOvertaken cancels an attempt that a later attempt has overtaken: its endpoint had the
// request for longer and did not answer.
var errOvertaken = errors.New("router: a later attempt was answered first")

// sendHedged sends further attempts while no answer arrives.
func (c *exchange) sendHedged(ctx context.Context) answer {
	c.retainMemory()
	c.router.options.Yield(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	f := &hedgedCall{c: c, hedge: c.Plan.Hedge, copier: newSharedMessage(c.request), answers: make(chan answer), over: over, ctx: ctx}
	defer f.copier.release()
	c.request = nil
	var backoff readyBackoff
	for {
		a := f.run()
		if !a.unsent || !backoff.next(ctx, c) {
			return a
		}
		f.sent = 0
	}
}

// run starts attempts until an answer decides the call.
func (f *hedgedCall) run() answer {
	if !f.startAttempt() {
		return f.last
	}
	timer := time.NewTimer(f.hedge.After)
	defer timer.Stop()
	for {
		select {
		case a := <-f.answers:
			f.running--
			if f.last = a; f.isFinal(a) {
				f.cancelOvertaken(a.number)
				return a
			}
			// A failed attempt is followed by the next one at once.
			if f.replaceUnsent(a) || f.sendAnother() {
				timer.Reset(f.hedge.After)
			} else if f.running == 0 {
				return f.last
			}
		case <-timer.C:
			if f.sendAnother() {
				timer.Reset(f.hedge.After)
			}
		case <-f.ctx.Done():
			return answer{err: toStatus(f.ctx.Err()), endpoint: f.last.endpoint, ended: time.Now()}
		}
	}
}

// cancelOvertaken cancels the attempts that were started before the attempt that decided the call.
func (f *hedgedCall) cancelOvertaken(number int) {
	for _, cancel := range f.cancels[:number] {
		cancel(errOvertaken)
	}
}

// isFinal reports whether the answer decides the call.
func (f *hedgedCall) isFinal(a answer) bool {
	return a.err == nil || !a.unsent && !slices.Contains(f.hedge.Codes, status.Code(a.err))
}

// sendAnother starts another attempt if the policy grants one.
func (f *hedgedCall) sendAnother() bool {
	if f.sent >= f.hedge.Attempts || f.ctx.Err() != nil || !f.hedge.Next(&f.c.Exchange, f.sent) {
		return false
	}
	f.c.router.stats.hedges.Add(1)
	f.c.numberAttempt(f.sent)
	return f.startAttempt()
}

// replaceUnsent starts an attempt in place of one whose endpoint never saw the call. It needs no grant
// of the policy.
func (f *hedgedCall) replaceUnsent(a answer) bool {
	if !a.unsent || f.ctx.Err() != nil || !f.c.mayRetryUnsent() {
		return false
	}
	f.sent--
	return f.startAttempt()
}

// startAttempt starts an attempt at an endpoint that had no earlier attempt, if there is one.
// Without any endpoint, the error is the last answer.
func (f *hedgedCall) startAttempt() bool {
	c, now := f.c, time.Now()
	f.sent++
	p, err := c.router.pickReady(f.ctx, c.Head, c.tried, now)
	if err != nil {
		f.last = answer{err: err, ended: now}
		return false
	}
	// The attempt gets all values of the exchange here, since the exchange may end before the
	// attempt.
	head, request, number := c.Head, f.copier.acquire(), len(f.cancels)
	ctx, cancel := context.WithCancelCause(f.ctx)
	if !c.router.spawn(func() { f.attempt(ctx, p, head, request, number) }) {
		cancel(nil)
		request.Free()
		p.pick.Cancel()
		p.release()
		f.last = answer{err: status.Error(codes.Unavailable, errClosed.Error()), ended: now}
		return false
	}
	f.cancels = append(f.cancels, cancel)
	c.attempts++
	c.tried = append(c.tried, p.id)
	f.running++
	return true
}

func (f *hedgedCall) attempt(ctx context.Context, p picked, h *call.Head, request *call.Message, number int) {
	a := p.forward(ctx, h, request)
	a.number = number
	a.request.Free()
	select {
	case f.answers <- a:
	case <-f.over:
		a.response.Free()
	}
}
