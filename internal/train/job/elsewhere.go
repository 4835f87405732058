package job

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/launch"
)

// A move lets stages whose time is over continue on other nodes. All ranks of a node move together,
// to the same node: the ranks are divided over nodes as before, and so are the sums, whose last bits
// depend on it. The next attempt starts all ranks again, with the states that they have left.
type move struct {
	job   *activeJob
	nodes []*nodeRun // of the attempt
	hold  func([]outboard.Lease) *heldLeases

	mu sync.Mutex
	to map[*nodeRun]*nodeRun // by the node that the ranks leave; empty: no move is granted
	// states has the state of each rank as a file whose name is the number of the rank.
	states map[int]data.File
	err    error // the first error of a state
}

// errMoved ends an attempt whose ranks continue in the next one, which is no restart.
var errMoved = errors.New("stages continue on other nodes")

// A statesError says that a rank has left a state that its manager could not copy: the ranks have
// ended, and start again from the last checkpoint.
type statesError struct{ err error }

func (e *statesError) Error() string { return fmt.Sprintf("a state of a stage is lost (%v)", e.err) }

func (e *statesError) Unwrap() error { return e.err }

const (
	// offerLimit bounds how long a rank waits for the devices of other nodes.
	offerLimit = 10 * time.Second
	// maxOffers bounds the nodes that are asked, one after the other, whether they start ranks.
	maxOffers = 8
)

// movesStages reports whether stages of a job may continue on other nodes.
func movesStages(s *client.JobSpec) bool {
	return launch.Resources{StageLimit: s.StageLimit}.Elsewhere()
}

// answerExpired answers the request of a node for devices of other nodes.
func (a *activeJob) answerExpired(ctx context.Context, n *nodeRun, e *expired) {
	spec := a.snapshot().Spec
	granted := n.first == 0 && movesStages(&spec) && a.move.leaseElsewhere(ctx, e.Ranks)
	_ = n.out.send(message{Moves: &moves{Granted: granted}}) // A lost node needs no answer.
}

// leaseElsewhere leases the devices of other nodes for the nodes of ranks whose time is over, and
// reports whether there are any. It does not wait for devices that are busy.
func (m *move) leaseElsewhere(ctx context.Context, ranks []int) bool {
	ctx, cancel := context.WithTimeout(ctx, offerLimit)
	defer cancel()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.to) > 0 {
		return false // The ranks end already.
	}
	taken := make(map[outboard.NodeID]bool)
	for _, n := range m.nodes {
		taken[n.node] = true
	}
	m.to = make(map[*nodeRun]*nodeRun)
	for _, n := range m.nodes {
		if !slices.ContainsFunc(ranks, n.has) {
			continue
		}
		if next := m.leaseOther(ctx, n, taken); next != nil {
			m.to[n] = next
			m.job.note("%s on node %s: the next processes run on node %s", nameRanks(n), n.node, next.node)
		}
	}
	return len(m.to) > 0
}

func nameRanks(n *nodeRun) string {
	if n.count == 1 {
		return fmt.Sprintf("the time of rank %d is over", n.first)
	}
	return fmt.Sprintf("the time of ranks %d to %d is over", n.first, n.first+n.count-1)
}

// leaseOther leases as many devices as n has on a node that is not taken and starts ranks. It takes
// the nodes that it asks. It returns nil if there is none.
func (m *move) leaseOther(ctx context.Context, n *nodeRun, taken map[outboard.NodeID]bool) *nodeRun {
	options := &m.job.manager.opts
	for range maxOffers {
		leases := m.leaseOnOneNode(ctx, len(n.leases), taken)
		if leases == nil {
			return nil
		}
		held, node := m.hold(leases), nodeOf(leases[0].Device)
		taken[node] = true
		self, _ := options.Leases.Node(node)
		err := m.offer(ctx, node)
		if err == nil {
			return &nodeRun{node: node, boot: self.Boot, number: n.number, leases: leases, held: held, first: n.first, count: n.count}
		}
		held.release()
		options.Log.Info("a node takes no stage", "job", m.job.snapshot().ID, "node", node, "error", err)
	}
	return nil
}

// offer asks a node whether it starts ranks.
func (m *move) offer(ctx context.Context, node outboard.NodeID) error {
	j := m.job.snapshot()
	stream, err := m.job.manager.opts.Peers.open(ctx, node, methodOffer, purpose{Job: j.ID, Attempt: j.Attempt})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { stream.Reset(errStopped) })()
	defer stream.Close() // The answer has arrived, or the stream has failed.
	_, err = io.Copy(io.Discard, stream)
	return err
}

// leaseOnOneNode leases devices of one node that is not taken, if they are free now. Of a single
// device the pool chooses the node; for several devices each node is tried.
func (m *move) leaseOnOneNode(ctx context.Context, count int, taken map[outboard.NodeID]bool) []outboard.Lease {
	j, pooled := m.job.snapshot(), m.job.manager.opts.Leases
	unusable, _ := m.job.unusable(time.Now())
	all := pooled.Devices()
	matching := make(map[outboard.NodeID]int)
	var nodes []outboard.NodeID // in the order of their devices
	for _, d := range all {
		if taken[d.Node] || slices.Contains(unusable, d.ID) || !j.Spec.Selector.Match(d.Device) {
			continue
		}
		if matching[d.Node]++; matching[d.Node] == count {
			nodes = append(nodes, d.Node)
		}
	}
	request := pool.Request{Selector: j.Spec.Selector, Count: count, Memory: j.Spec.Memory, Program: "job " + j.ID, NoWait: true}
	acquire := func(usable func(outboard.NodeID) bool) []outboard.Lease {
		request.Exclude = nil
		for _, d := range all {
			if !usable(d.Node) {
				request.Exclude = append(request.Exclude, d.ID)
			}
		}
		leases, err := pooled.Acquire(ctx, request)
		if err != nil {
			return nil
		}
		return leases
	}
	if count == 1 && len(nodes) > 0 {
		return acquire(func(id outboard.NodeID) bool { return slices.Contains(nodes, id) })
	}
	for _, node := range nodes {
		if leases := acquire(func(id outboard.NodeID) bool { return id == node }); leases != nil {
			return leases
		}
	}
	return nil
}

// copyState copies the state that a rank has left to this node.
func (m *move) copyState(ctx context.Context, n *nodeRun, s *suspended) {
	m.mu.Lock()
	granted := len(m.to) > 0
	m.mu.Unlock()
	if !granted || !n.has(s.Rank) {
		return
	}
	manifest, err := data.Copy(ctx, m.job.manager.opts.Chunks, s.Digest)
	if err == nil && (len(manifest.Files) != 1 || manifest.Files[0].Name != stateName(s.Rank)) {
		err = outboard.Errorf(outboard.Protocol, "", "node %s has sent no state of rank %d", n.node, s.Rank)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil {
		m.err = errors.Join(m.err, err)
		return
	}
	if m.states == nil {
		m.states = make(map[int]data.File)
	}
	m.states[s.Rank] = manifest.Files[0]
}

// stateName returns the name of the file with the state of a rank.
func stateName(rank int) string { return strconv.Itoa(rank) }

// finishMove records the states with which the ranks continue, and sets the nodes of the next
// attempt, if the attempt has ended without an error because stages move. It then returns errMoved,
// else the error of the attempt.
func (a *activeJob) finishMove(ctx context.Context, err error) error {
	m := a.move
	m.mu.Lock()
	defer m.mu.Unlock()
	if err != nil || len(m.to) == 0 || len(m.states) == 0 && m.err == nil {
		return err
	}
	digest, err := m.saveStates(ctx, a.manager.opts.Chunks, a.snapshot().World)
	if err != nil {
		return &statesError{err}
	}
	err = a.update(ctx, func(j *client.Job) {
		next := *j.Stages
		next.States, next.World = digest, j.World
		j.Stages = &next
	})
	if err != nil {
		return &statesError{err}
	}
	a.next = m.nextNodes()
	return errMoved
}

// saveStates writes the manifest of the states of all ranks. m.mu is held.
func (m *move) saveStates(ctx context.Context, chunks data.Chunks, world int) (digest string, err error) {
	if m.err != nil {
		return "", m.err
	}
	var all data.Manifest
	for rank := range world {
		f, ok := m.states[rank]
		if !ok {
			return "", outboard.Errorf(outboard.Unreachable, "", "rank %d has left none", rank)
		}
		all.Files = append(all.Files, f)
	}
	return data.Save(ctx, chunks, &all)
}

// nextNodes returns the nodes of the next attempt. m.mu is held.
func (m *move) nextNodes() (list []*nodeRun) {
	for _, n := range m.nodes {
		next := m.to[n]
		if next == nil {
			next = &nodeRun{node: n.node, boot: n.boot, number: n.number, leases: n.leases, held: n.held, first: n.first, count: n.count}
		}
		list = append(list, next)
	}
	return list
}

// releaseLeases releases the leases of an attempt that has ended, except those of the next one.
func (a *activeJob) releaseLeases(nodes []*nodeRun) {
	var releasing sync.WaitGroup
	release := func(n *nodeRun) {
		if !slices.ContainsFunc(a.next, func(o *nodeRun) bool { return o.held == n.held }) {
			releasing.Go(n.held.release)
		}
	}
	for _, n := range nodes {
		release(n)
	}
	for _, n := range a.move.to {
		release(n)
	}
	releasing.Wait()
}

// nextStages returns what the next attempt of a job begins with: the states of its stages if there
// are any for as many ranks, else its last checkpoint; nil for a job whose stages stay.
func nextStages(j *client.Job, link collective.Link) *client.JobStages {
	if !movesStages(&j.Spec) {
		return nil
	}
	next := client.JobStages{World: j.World, Attempt: j.Attempt}
	if s := j.Stages; s != nil && s.States != "" && s.World == j.World {
		next = *s
	} else if j.Checkpoint != nil {
		next.Checkpoint = j.Checkpoint.Digest
	}
	next.Latency, next.Bandwidth = link.Latency, link.Bandwidth
	return &next
}

// describeMove says for people which nodes have been replaced.
func describeMove(before, after []*nodeRun) string {
	var list []string
	for i, n := range after {
		if o := before[i]; o.node != n.node {
			list = append(list, fmt.Sprintf("%d rank(s) from rank %d on, from node %s to node %s", n.count, n.first, o.node, n.node))
		}
	}
	return "stages continue on other nodes: " + strings.Join(list, ", ")
}
