package router

import (
	"context"
	"slices"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// race is a hedged call: attempts that run beside each other, of which the first
// good answer wins. The goroutine that waits for it owns it; each attempt has one of
// its own, which may outlast the call by the time that cancelling takes.
type race struct {
	c       *exchange
	hedge   *policy.Hedge
	copier  *copier
	answers chan answer     // not buffered: what is sent is received
	over    <-chan struct{} // nobody receives any more
	ctx     context.Context //nolint:containedctx // the attempts'
	running int
	sent    int
	last    answer // of those that failed
}

// hedged sends the call again and again while no answer comes.
func (c *exchange) hedged(ctx context.Context) answer {
	c.last()
	c.router.options.Yield(ctx)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	over := make(chan struct{})
	defer close(over)
	f := &race{c: c, hedge: c.Plan.Hedge, copier: copierOf(c.request), answers: make(chan answer), over: over, ctx: ctx}
	defer f.copier.free()
	c.request = nil
	return f.run()
}

// run sends attempts until one decides the call.
func (f *race) run() answer {
	if !f.send() {
		return f.last
	}
	timer := time.NewTimer(f.hedge.After)
	defer timer.Stop()
	for {
		select {
		case a := <-f.answers:
			f.running--
			if f.last = a; f.decides(a) {
				return a
			}
			// Who failed makes room for the next at once.
			if f.more() {
				timer.Reset(f.hedge.After)
			} else if f.running == 0 {
				return f.last
			}
		case <-timer.C:
			if f.more() {
				timer.Reset(f.hedge.After)
			}
		case <-f.ctx.Done():
			return answer{err: statusOf(f.ctx.Err()), endpoint: f.last.endpoint, ended: time.Now()}
		}
	}
}

// decides says that no other answer is to be waited for.
func (f *race) decides(a answer) bool {
	return a.err == nil || !slices.Contains(f.hedge.Codes, status.Code(a.err))
}

// more sends one more attempt where the policy has one.
func (f *race) more() bool {
	if f.sent >= f.hedge.Attempts || f.ctx.Err() != nil || !f.hedge.Next(&f.c.Exchange, f.sent) {
		return false
	}
	f.c.router.stats.hedges.Add(1)
	f.c.again(f.sent)
	return f.send()
}

// send starts an attempt, at an endpoint that none of the others went to where there
// is one. When there is none at all, that is the last answer.
func (f *race) send() bool {
	c, now := f.c, time.Now()
	f.sent++
	p, err := c.router.pick(c.Head.Service(), c.Head, c.tried, now)
	if err != nil {
		f.last = answer{err: err, ended: now}
		return false
	}
	// Everything is taken from the exchange here: it may be over before the attempt.
	head, ctx, request := c.Head, f.ctx, f.copier.one()
	if !c.router.goes(func() { f.attempt(ctx, p, head, request) }) {
		request.Free()
		p.pick.Cancel()
		p.release()
		f.last = answer{err: status.Error(codes.Unavailable, errClosed.Error()), ended: now}
		return false
	}
	c.attempts++
	c.tried = append(c.tried, p.id)
	f.running++
	return true
}

func (f *race) attempt(ctx context.Context, p picked, h *call.Head, request *call.Message) {
	a := p.forward(ctx, h, request)
	select {
	case f.answers <- a:
	case <-f.over:
		a.response.Free()
	}
}
