package job

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard"
)

// maxCopies bounds the reports of a node whose chunks wait to be copied: the node's further reports
// are not read meanwhile.
const maxCopies = 64

// readReports processes the reports of a node until its stream ends. It sends at most two events: the
// end of the ranks, and that of the stream. ctx is that of the copies of chunks: a copy takes as long
// as its source, so lines and failures do not wait for it.
func (a *activeJob) readReports(ctx context.Context, n *nodeRun, events chan<- attemptEvent) {
	copies := make(chan message, maxCopies)
	var copying sync.WaitGroup
	defer copying.Wait()
	defer close(copies)
	copying.Go(func() { a.copyChunks(ctx, n, copies, events) })
	for ended := false; ; {
		m, err := receive(n.stream)
		if err == nil && ended && m.Exited != nil {
			err = outboard.Errorf(outboard.Protocol, "training job", "a second report of the ranks' end")
		}
		if err != nil {
			events <- attemptEvent{from: n, err: err}
			return
		}
		ended = ended || m.Exited != nil
		a.readReport(ctx, n, m, copies, events)
	}
}

// readReport processes a report, or queues it behind those whose chunks are copied. The end of ranks
// that have not failed is queued, so that their profiles and states are there when the attempt has
// ended.
func (a *activeJob) readReport(ctx context.Context, n *nodeRun, m message, copies chan<- message, events chan<- attemptEvent) {
	switch {
	case m.Line != nil && n.has(m.Line.Rank):
		a.addLine(n, m.Line)
	case m.Decided != nil:
		a.explainDecision(n, m.Decided)
	case m.Exited != nil && m.Exited.Rank >= 0:
		a.reportEnd(n, m.Exited, events)
	case m.Saved != nil, m.Profiled != nil, m.Expired != nil, m.Suspended != nil, m.Exited != nil:
		select {
		case copies <- m:
		case <-ctx.Done(): // The attempt is over.
		}
	}
}

// maxReason bounds the reason of a failure in bytes: the job's record has it.
const maxReason = 4 << 10

func (a *activeJob) reportEnd(n *nodeRun, e *exited, events chan<- attemptEvent) {
	e.Reason = e.Reason[:min(len(e.Reason), maxReason)]
	a.explainSums(n, e.Sums)
	events <- attemptEvent{from: n, exited: e}
}

// copyChunks copies what a node has reported, and answers its requests, in order.
func (a *activeJob) copyChunks(ctx context.Context, n *nodeRun, reports <-chan message, events chan<- attemptEvent) {
	for m := range reports {
		switch {
		case m.Saved != nil:
			a.copyCheckpoint(ctx, n, m.Saved)
		case m.Profiled != nil:
			a.copyProfile(ctx, n, m.Profiled)
		case m.Expired != nil:
			a.answerExpired(ctx, n, m.Expired)
		case m.Suspended != nil:
			a.move.copyState(ctx, n, m.Suspended)
		default:
			a.reportEnd(n, m.Exited, events)
		}
	}
}
