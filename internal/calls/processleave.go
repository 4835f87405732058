package calls

import (
	"bytes"
	"cmp"
	"context"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/outboard-run/outboard/internal/fabric/policy"
)

// retire ends the process after its last call.
func (p *process) retire() {
	told := make(chan struct{})
	var telling sync.WaitGroup
	telling.Go(func() { p.tellHeld(told) })
	err := p.plane.Retire(p.life)
	close(told)
	telling.Wait()
	if err != nil {
		return
	}
	if err := p.settle(); err != nil {
		p.log.Warn("what was counted is lost", "error", err)
	}
	close(p.retired)
}

// settle hands the node what was counted, so that it is there still when this process
// is not.
func (p *process) settle() error {
	l := ledger{Calls: p.plane.Table(), Policies: p.plane.Policies()}
	var text bytes.Buffer
	families, err := p.metrics.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return err
		}
	}
	l.Metrics = text.Bytes()
	f, err := fileOf("ledger", &l)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(p.life, settleLimit)
	defer cancel()
	_, err = p.control.ask(ctx, &message{Type: msgLeft, files: []*os.File{f}})
	return err
}

// settleLimit is how long the node may take to note what was counted.
const settleLimit = 5 * time.Second

// hold is a file with what the policies hold, none where it can't be made.
func (p *process) hold() []*os.File {
	f, err := fileOf("policies", p.plane.table.ExportState(time.Now()))
	if err != nil {
		p.log.Warn("the policies begin anew in the process that takes over", "error", err)
		return nil
	}
	return []*os.File{f}
}

// What is told of the calls under way in a process that is being replaced. Most are
// over, or are streams that have moved, when it begins.
const (
	heldFrom  = time.Second
	heldEvery = 50 * time.Millisecond
)

// tellHeld tells the node which calls are under way here that policies count, when
// that has changed.
func (p *process) tellHeld(done <-chan struct{}) {
	wait := time.NewTimer(heldFrom)
	defer wait.Stop()
	var before []policy.InFlight
	for {
		select {
		case <-done:
			return
		case <-wait.C:
			wait.Reset(heldEvery)
		}
		now := p.plane.table.InFlightCalls()
		slices.SortFunc(now, func(a, b policy.InFlight) int {
			return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
		})
		if slices.Equal(now, before) {
			continue
		}
		before = now
		f, err := fileOf("held", now)
		if err != nil {
			continue
		}
		// Its error is that the node is gone, and with it this process.
		_ = p.control.tell(&message{Type: msgHeld, files: []*os.File{f}})
		_ = f.Close()
	}
}
