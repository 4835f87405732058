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
	"github.com/outboard-run/outboard/internal/ipc"
)

// retire ends the process after its last call.
func (p *process) retire() {
	done := make(chan struct{})
	var reporting sync.WaitGroup
	reporting.Go(func() { p.reportHeld(done) })
	err := p.plane.Retire(p.life)
	close(done)
	reporting.Wait()
	if err != nil {
		return
	}
	if err := p.passCounters(); err != nil {
		p.log.Warn("the counters of this process are lost", "error", err)
	}
	// The node makes no link to this process any more; one that it made before has arrived. The
	// calls on it are not counted.
	if p.plane.awaitLinks(p.life) == nil {
		close(p.retired)
	}
}

// passCounters passes the counters to the node, which reports them after this process has ended.
func (p *process) passCounters() error {
	c := counters{Calls: p.plane.Table(), Policies: p.plane.Policies()}
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
	c.Metrics = text.Bytes()
	f, err := encodeFile("ledger", &c)
	if err != nil {
		return err
	}
	defer f.Close()
	ctx, cancel := context.WithTimeout(p.life, countersLimit)
	defer cancel()
	m, err := p.node.Call(ctx, msgLeft, nil, f)
	if err == nil {
		m.Close()
	}
	return err
}

// countersLimit is how long the node may take to store the counters of a process.
const countersLimit = 5 * time.Second

// pause stops accepting connections, and replies with the state of the policies, if that can be
// passed.
func (p *process) pause(m *ipc.Message) {
	f, err := encodeFile("policies", p.plane.policies.table.ExportState(time.Now()))
	if err != nil {
		p.log.Warn("the process that takes over begins with policies without state", "error", err)
		p.reply(m, nil, p.plane.Pause())
		return
	}
	defer f.Close()
	p.reply(m, nil, p.plane.Pause(), f)
}

// restorePolicies restores the policies' state from the previous process.
func (p *process) restorePolicies(f *os.File) error {
	var state policy.SetState
	err := decodeFile(f, &state)
	p.plane.policies.table.ImportState(state, time.Now())
	return err
}

// countHeld has the policies count the calls in flight in other processes.
func (p *process) countHeld(f *os.File) {
	var held []policy.InFlight
	// After an error no calls in other processes are counted.
	_ = decodeFile(f, &held)
	p.plane.policies.table.SetRemoteInFlight(held, time.Now())
}

// A process that is being replaced reports its calls in flight after heldDelay: by then most are
// over, or are streams that have moved.
const (
	heldDelay    = time.Second
	heldInterval = 50 * time.Millisecond
)

// reportHeld reports to the node the calls in flight here that policies count, whenever they
// change.
func (p *process) reportHeld(done <-chan struct{}) {
	wait := time.NewTimer(heldDelay)
	defer wait.Stop()
	var before []policy.InFlight
	for {
		select {
		case <-done:
			return
		case <-wait.C:
			wait.Reset(heldInterval)
		}
		now := p.plane.policies.table.InFlightCalls()
		slices.SortFunc(now, func(a, b policy.InFlight) int {
			return cmp.Or(cmp.Compare(a.Policy, b.Policy), cmp.Compare(a.Key, b.Key))
		})
		if slices.Equal(now, before) {
			continue
		}
		before = now
		f, err := encodeFile("held", now)
		if err != nil {
			continue
		}
		// An error means that the node is gone, and with it this process.
		_ = p.node.Send(msgInFlight, nil, f)
		_ = f.Close()
	}
}
