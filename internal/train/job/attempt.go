package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// A nodeRun is the part of an attempt on one node, as its manager sees it.
type nodeRun struct {
	node   outboard.NodeID
	boot   string // "" if the node has left since its devices were leased
	number int
	leases []outboard.Lease
	held   *heldLeases
	first  int
	count  int

	stream *framed.Stream
	out    *writer
	trail  checkpointTrail // of the checkpoints that this node has copied
}

// has reports whether a rank is one of the node's.
func (n *nodeRun) has(rank int) bool { return rank >= n.first && rank < n.first+n.count }

// An attemptEvent is a report of a node. Either exited or err is set.
type attemptEvent struct {
	from   *nodeRun
	exited *exited
	err    error // the node is lost, or has refused
}

// causeLimit is how long an attempt waits for the cause of a failure that looks like the
// consequence of another one: the silence of a node is noticed within 4 s. stopLimit is how long
// nodes have to end their ranks.
const (
	causeLimit = 6 * time.Second
	stopLimit  = 5 * time.Second
)

// attempt leases devices, runs the ranks once, and releases the devices. It returns a *rankError, a
// *lostError, a *statesError, errMoved, or the error that kept the ranks from starting. After
// errMoved the devices of the next attempt are leased.
func (a *activeJob) attempt(ctx context.Context) error {
	asked := time.Now()
	hold := func(leases []outboard.Lease) *heldLeases { return holdLeases(ctx, a.manager.opts.Leases, leases) }
	nodes, before := a.next, a.move
	if a.next = nil; nodes == nil {
		leases, err := a.acquire(ctx)
		if err != nil {
			return err
		}
		nodes, before = a.assignRanks(leases), nil
		for _, n := range nodes {
			n.held = hold(n.leases)
		}
	}
	a.move = &move{job: a, nodes: nodes, hold: hold}
	defer a.releaseLeases(nodes)
	life, lose := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer lose(nil)
	watchLeases(life, nodes, lose, &watching)
	link, err := a.recordAttempt(ctx, nodes, before, time.Since(asked))
	if err != nil {
		return err
	}
	began := time.Now()
	err = a.runRanks(life, nodes, link)
	a.charge(nodes, time.Since(began))
	if lost, ok := errors.AsType[*lostError](context.Cause(life)); ok && ctx.Err() == nil {
		err = lost
	}
	err = a.finishMove(ctx, err)
	// The leases of lost nodes may be released only after an election.
	if isLoss(err) && ctx.Err() == nil {
		a.note("%v", err)
	}
	return err
}

// recordAttempt records that an attempt begins: no later one, also after the node has failed, has the
// same number. It returns the slowest link between its nodes. before is
// the move that the attempt continues, nil for none.
func (a *activeJob) recordAttempt(ctx context.Context, nodes []*nodeRun, before *move, waited time.Duration) (collective.Link, error) {
	first := fmt.Sprintf("waited %v for %d device(s) on %d node(s), granted together", waited.Round(time.Millisecond), devices(nodes), len(nodes))
	link, measured := slowestLink(a.manager.opts.Leases.Links(), nodes)
	if before != nil {
		first = describeMove(before.nodes, nodes)
		// The algorithms of sums stay as they are, on which the last bits depend.
		s := a.snapshot().Stages
		link, measured = collective.Link{Latency: s.Latency, Bandwidth: s.Bandwidth}, "that of the stages' first attempt"
	}
	why := append([]string{first}, explain(nodes, link, measured)...)
	gradients, err := compress.Parse(a.snapshot().Spec.Gradients)
	if err != nil {
		return link, err
	}
	if len(nodes) > 1 {
		why = append(why, gradients.Explain())
	}
	if p := a.snapshot().Spec.Plan; p != "" {
		why = append(why, "plan: "+p)
	}
	err = a.updateNoting(ctx, "the start of the ranks", func(j *client.Job) {
		j.Attempt++
		j.State, j.Reason, j.World, j.Why, j.Ranks = client.JobStarting, "", devices(nodes)*j.Spec.PerDevice, why, ranksOf(nodes)
		j.Stages = nextStages(j, link)
		if j.Started.IsZero() {
			j.Started = time.Now().UTC()
		}
	})
	return link, errors.Join(err, a.manager.removeProfiles(a.snapshot().ID))
}

func nodeOf(id outboard.DeviceID) outboard.NodeID {
	node, _, _ := strings.Cut(string(id), "/")
	return outboard.NodeID(node)
}

// assignRanks numbers the nodes and the ranks, in the order of the devices.
func (a *activeJob) assignRanks(leases []outboard.Lease) []*nodeRun {
	per := a.snapshot().Spec.PerDevice
	slices.SortFunc(leases, func(x, y outboard.Lease) int { return strings.Compare(string(x.Device), string(y.Device)) })
	var nodes []*nodeRun
	for i, l := range leases {
		if len(nodes) == 0 || nodes[len(nodes)-1].node != nodeOf(l.Device) {
			self, _ := a.manager.opts.Leases.Node(nodeOf(l.Device))
			nodes = append(nodes, &nodeRun{node: nodeOf(l.Device), boot: self.Boot, number: len(nodes), first: i * per})
		}
		n := nodes[len(nodes)-1]
		n.leases, n.count = append(n.leases, l), n.count+per
	}
	return nodes
}

func ranksOf(nodes []*nodeRun) (list []client.JobRank) {
	for _, n := range nodes {
		per := n.count / len(n.leases)
		for i, l := range n.leases {
			list = append(list, client.JobRank{First: n.first + i*per, Count: per, Node: n.node, Device: l.Device})
		}
	}
	return list
}

// slowestLink returns the slowest measured link between the nodes, and where its values are from, for
// people.
func slowestLink(links []client.Link, nodes []*nodeRun) (link collective.Link, measured string) {
	if len(nodes) == 1 {
		return link, ""
	}
	is := func(id outboard.NodeID) bool {
		return slices.ContainsFunc(nodes, func(n *nodeRun) bool { return n.node == id })
	}
	for _, l := range links {
		if !is(l.From) || !is(l.To) {
			continue
		}
		link.Latency = max(link.Latency, l.RTT/2)
		for _, w := range []float64{l.Forward, l.Backward} {
			if w > 0 && (link.Bandwidth == 0 || w < link.Bandwidth) {
				link.Bandwidth = w
			}
		}
	}
	if link.Latency == 0 || link.Bandwidth == 0 {
		return collective.Link{Latency: 50 * time.Microsecond, Bandwidth: 1e9}, "assumed, for it is not measured"
	}
	return link, "measured"
}

// explain describes the decisions for an attempt to people.
func explain(nodes []*nodeRun, link collective.Link, measured string) (why []string) {
	for _, n := range nodes {
		why = append(why, fmt.Sprintf("%d rank(s) from rank %d on, on node %s", n.count, n.first, n.node))
	}
	if len(nodes) == 1 {
		return append(why, "collectives: in the memory of one node, in the order of ranks")
	}
	why = append(why, fmt.Sprintf("slowest link between them: %v one way, %.0f MB/s (%s)", link.Latency, link.Bandwidth/1e6, measured))
	for _, size := range []int{4 << 10, 1 << 20, 16 << 20} {
		c := collective.Choose(len(nodes), size, link)
		why = append(why, fmt.Sprintf("all-reduce of %v between nodes: %s, %v predicted", outboard.Bytes(size), c.Algorithm, c.Predicted[c.Algorithm].Round(time.Microsecond)))
	}
	return why
}

func devices(nodes []*nodeRun) (n int) {
	for _, r := range nodes {
		n += len(r.leases)
	}
	return n
}

// charge adds the time of an attempt to the devices' use.
func (a *activeJob) charge(nodes []*nodeRun, d time.Duration) {
	a.change(func(j *client.Job) {
		for _, n := range nodes {
			i := slices.IndexFunc(j.Devices, func(u client.JobDeviceUse) bool { return u.Node == n.node })
			if i < 0 {
				j.Devices, i = append(j.Devices, client.JobDeviceUse{Node: n.node}), len(j.Devices)
			}
			j.Devices[i].Devices = max(j.Devices[i].Devices, len(n.leases))
			j.Devices[i].Seconds += d.Seconds() * float64(len(n.leases))
		}
	})
}

// runRanks starts the ranks on all nodes and waits until they have ended.
func (a *activeJob) runRanks(ctx context.Context, nodes []*nodeRun, link collective.Link) error {
	events := make(chan attemptEvent, 2*len(nodes))
	// Copies of chunks end with the attempt: their source may be a node that does not answer.
	copies, stopCopies := context.WithCancel(ctx)
	var reading sync.WaitGroup
	defer reading.Wait()
	defer resetStreams(nodes)
	defer stopCopies()
	for _, n := range nodes {
		if err := a.startNode(ctx, n, nodes, link); err != nil {
			a.stopAll(nodes)
			return &lostError{node: n.node, boot: n.boot, err: err}
		}
		reading.Go(func() { a.readReports(copies, n, events) })
	}
	a.change(func(j *client.Job) { j.State = client.JobRunning })
	return a.wait(ctx, nodes, events)
}

func (a *activeJob) startNode(ctx context.Context, n *nodeRun, nodes []*nodeRun, link collective.Link) error {
	j := a.snapshot()
	s := &start{
		Gradients: j.Spec.Gradients, Offload: j.Spec.Offload, Threads: j.Spec.Threads, StageLimit: j.Spec.StageLimit, World: j.World, First: n.first, Count: n.count, PerDevice: j.Spec.PerDevice, Node: n.number,
		Args: j.Spec.Args, Files: j.Spec.Files, Env: j.Spec.Env, Link: link,
	}
	s.Stream, s.Profile = j.Spec.Stream, j.Spec.Profile
	if s.Data = j.DataDigest; j.Checkpoint != nil {
		s.Checkpoint = j.Checkpoint.Digest
	}
	if stages := j.Stages; stages != nil {
		s.Checkpoint, s.States, s.Repeats = stages.Checkpoint, stages.States, stages.Attempt
	}
	for _, o := range nodes {
		s.Nodes = append(s.Nodes, o.node)
	}
	for _, l := range n.leases {
		claim, err := a.manager.opts.Leases.Claim(l)
		if err != nil {
			return err
		}
		s.Claims = append(s.Claims, claim)
	}
	var err error
	if n.stream, err = a.manager.opts.Peers.open(ctx, n.node, methodRun, purpose{Job: j.ID, Attempt: j.Attempt}); err != nil {
		return err
	}
	n.out = &writer{out: n.stream}
	// The request may be larger than what a node that does not read it grants.
	defer context.AfterFunc(ctx, func() { n.stream.Reset(errStopped) })()
	return n.out.send(message{Start: s})
}

// explainSums adds the sums that a node has compressed to the explanation of the attempt.
func (a *activeJob) explainSums(n *nodeRun, t compress.Stats) {
	gradients, err := compress.Parse(a.snapshot().Spec.Gradients)
	text := gradients.Describe(t)
	if err != nil || text == "" {
		return
	}
	a.manager.opts.Metrics.summed(t)
	a.change(func(j *client.Job) { j.Why = append(j.Why, fmt.Sprintf("node %s: %s", n.node, text)) })
}

// maxExplained is the number of ranks whose decisions are explained.
const maxExplained = 64

// explainDecision adds a node's decision for a rank to the explanation of the attempt, in place of
// the previous one about the same subject.
func (a *activeJob) explainDecision(n *nodeRun, d *ranks.Decision) {
	if !n.has(d.Rank) || d.Rank >= maxExplained || !ranks.IsSubject(d.Subject) {
		return
	}
	about := fmt.Sprintf("rank %d, %s: ", d.Rank, d.Subject)
	line := about + d.Text[:min(len(d.Text), maxExplanation)]
	a.changeOften(func(j *client.Job) bool {
		if i := slices.IndexFunc(j.Why, func(w string) bool { return strings.HasPrefix(w, about) }); i >= 0 {
			j.Why[i] = line
		} else {
			j.Why = append(j.Why, line)
		}
		return true
	})
}

// maxExplanation bounds the text of a decision in bytes.
const maxExplanation = 512

// stopAll tells the nodes to stop their ranks. A node that does not read its messages loses its
// stream after stopLimit.
func (a *activeJob) stopAll(nodes []*nodeRun) {
	limit := time.AfterFunc(stopLimit, func() { resetStreams(nodes) })
	defer limit.Stop()
	var sending sync.WaitGroup
	for _, n := range nodes {
		if n.out != nil {
			sending.Go(func() { _ = n.out.send(message{Stop: &stop{}}) }) // A lost node needs no message.
		}
	}
	sending.Wait()
}

func resetStreams(nodes []*nodeRun) {
	for _, n := range nodes {
		if n.stream != nil {
			n.stream.Reset(errStopped)
		}
	}
}

// An outcome collects the reports of the nodes of an attempt.
type outcome struct {
	left    map[*nodeRun]bool // nodes whose ranks run
	failure *rankError        // the first failure, or the one that is no consequence of another
	caused  bool              // failure is no consequence of another one
	lost    error
}

// add processes an event.
func (o *outcome) add(e attemptEvent) {
	if !o.left[e.from] {
		return // It has already reported the end of its ranks.
	}
	delete(o.left, e.from)
	switch {
	case e.exited == nil:
		if errors.Is(e.err, io.EOF) {
			e.err = errors.New("it has ended the connection")
		}
		if o.lost == nil {
			o.lost = refusalOr(e)
		}
	case e.exited.Rank >= 0 && (o.failure == nil || !o.caused && !e.exited.AfterLoss || e.exited.Killed):
		o.failure = &rankError{rank: e.exited.Rank, status: e.exited.Status, killed: e.exited.Killed, node: e.from.node, reason: e.exited.Reason}
		o.caused = !e.exited.AfterLoss || e.exited.Killed
	}
}

// refusalOr returns a node's refusal to start ranks, which names the node, or else a *lostError.
func refusalOr(e attemptEvent) error {
	switch outboard.KindOf(e.err) {
	case outboard.Denied, outboard.Invalid, outboard.NotFound, outboard.Exhausted, outboard.Protocol, outboard.Conflict:
		err := e.err
		if r, ok := errors.AsType[*outboard.Error](err); ok && r.Op == methodRun {
			err = r.Err
		}
		return outboard.Errorf(outboard.KindOf(e.err), "node "+string(e.from.node), "%w", err)
	default:
		return &lostError{node: e.from.node, boot: e.from.boot, err: e.err}
	}
}

// over reports whether the cause of the end is known.
func (o *outcome) over() bool { return o.lost != nil || o.caused || len(o.left) == 0 }

func (o *outcome) err() error {
	switch {
	case o.caused:
		return o.failure
	case o.lost != nil:
		return o.lost
	case o.failure != nil:
		return o.failure
	}
	return nil
}

// wait waits until all ranks have ended, and stops them when some have failed or ctx ends.
func (a *activeJob) wait(ctx context.Context, nodes []*nodeRun, events <-chan attemptEvent) error {
	o := &outcome{left: make(map[*nodeRun]bool)}
	for _, n := range nodes {
		o.left[n] = true
	}
	var settle <-chan time.Time
	for stopped := false; !stopped && !o.over(); {
		select {
		case e := <-events:
			if o.add(e); o.failure != nil && settle == nil {
				settle = time.After(causeLimit)
			}
		case <-settle:
			stopped = true
		case <-ctx.Done():
			stopped = true
		}
	}
	a.stopAll(nodes)
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	for len(o.left) > 0 {
		select {
		case e := <-events:
			if e.exited != nil || o.lost == nil {
				o.add(e)
			}
			delete(o.left, e.from)
		case <-limit.C:
			a.note("%d node(s) have not said that their ranks have ended", len(o.left))
			o.left = nil
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return o.err()
}
