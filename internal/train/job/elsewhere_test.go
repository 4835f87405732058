package job

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// memoryChunks are chunks that all nodes of a test share.
type memoryChunks struct {
	mu  sync.Mutex
	all map[string][]byte
}

func (c *memoryChunks) Has(_ context.Context, digest string) (bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all[digest] != nil, nil
}

func (c *memoryChunks) Put(_ context.Context, digest string, content []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all == nil {
		c.all = make(map[string][]byte)
	}
	c.all[digest] = bytes.Clone(content)
	return nil
}

func (c *memoryChunks) Get(_ context.Context, digest string) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if b := c.all[digest]; b != nil {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

// add stores a file, and adds it to a manifest.
func (c *memoryChunks) add(t *testing.T, m *data.Manifest, name, text string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := m.AddFile(t.Context(), c, name, 0o600, f); err != nil {
		t.Fatal(err)
	}
}

// save stores a file of a manifest of its own, and returns the digest of the manifest.
func (c *memoryChunks) save(t *testing.T, name, text string) string {
	t.Helper()
	var m data.Manifest
	c.add(t, &m, name, text)
	digest, err := data.Save(t.Context(), c, &m)
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// A smallPool grants devices. The node of a device is before the slash.
type smallPool struct {
	Leases
	devices []outboard.DeviceID

	mu   sync.Mutex
	last pool.Request
	held map[outboard.DeviceID]int // by device: how often it was leased, negative once it is released
	lose map[outboard.DeviceID]chan struct{}
}

func (p *smallPool) Changed() <-chan struct{} { return nil }

// Links returns a slow link between east and north, and a fast one between east and west.
func (p *smallPool) Links() []client.Link {
	return []client.Link{
		{From: "east", To: "north", RTT: 20 * time.Millisecond, Forward: 1e6, Backward: 1e6},
		{From: "east", To: "west", RTT: time.Millisecond, Forward: 1e9, Backward: 1e9},
	}
}

func (p *smallPool) Claim(l outboard.Lease) ([]byte, error) { return []byte(l.Device), nil }

func (p *smallPool) Node(id outboard.NodeID) (outboard.Node, bool) {
	return outboard.Node{ID: id, Boot: "boot of " + string(id)}, true
}

func (p *smallPool) Devices() (list []pool.DeviceState) {
	for _, id := range p.devices {
		var d pool.DeviceState
		d.ID, d.Node = id, nodeOf(id)
		list = append(list, d)
	}
	return list
}

func (p *smallPool) Acquire(_ context.Context, r pool.Request) (leases []outboard.Lease, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last = r
	for _, id := range p.devices {
		if p.held[id] <= 0 && !slices.Contains(r.Exclude, id) && len(leases) < r.Count {
			leases = append(leases, outboard.Lease{Device: id})
		}
	}
	if len(leases) < r.Count {
		return nil, outboard.Errorf(outboard.Busy, "acquire", "all are leased")
	}
	for _, l := range leases {
		p.held[l.Device] = 1 - p.held[l.Device]
	}
	return leases, nil
}

func (p *smallPool) Hold(ctx context.Context, l outboard.Lease) error {
	select {
	case <-p.lose[l.Device]:
		return errors.New("taken back")
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[l.Device] *= -1
	return nil
}

// uses returns the devices that are leased.
func (p *smallPool) uses() (list []outboard.DeviceID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, n := range p.held {
		if n > 0 {
			list = append(list, id)
		}
	}
	slices.Sort(list)
	return list
}

func newSmallPool(devices ...outboard.DeviceID) *smallPool {
	return &smallPool{devices: devices, held: make(map[outboard.DeviceID]int)}
}

// serveNodes returns connections to nodes. Those that refuse start no ranks; run plays a node with
// ranks, on the stream of its manager.
func serveNodes(t *testing.T, refusing []outboard.NodeID, run func(*start, *framed.Stream)) *Peers {
	t.Helper()
	var serving sync.WaitGroup
	p := &Peers{Dial: func(_ context.Context, node outboard.NodeID) (*framed.Conn, error) {
		a, b := net.Pipe()
		server := framed.Server(b, framed.Options{})
		mode := ModeTrusted
		if slices.Contains(refusing, node) {
			mode = ModeNone
		}
		serving.Go(func() {
			for {
				stream, err := server.Accept(context.Background())
				if err != nil {
					return
				}
				if stream.Method() != methodRun {
					if err := NewHost(HostOptions{Mode: mode, Self: node}).serve(t.Context(), stream, "manager"); err != nil {
						stream.Reset(err)
					}
					continue
				}
				serving.Go(func() {
					if m, err := receive(stream); err != nil || m.Start == nil {
						t.Errorf("node %s: got %+v, %v, want a start", node, m, err)
					} else {
						run(m.Start, stream)
					}
				})
			}
		})
		return framed.Client(a, framed.Options{}), nil
	}}
	t.Cleanup(func() {
		_ = p.Close() // It never fails.
		serving.Wait()
	})
	return p
}

// elsewhereJob returns a job of two ranks on two nodes, whose stages may continue on other nodes.
func elsewhereJob(t *testing.T, p *smallPool, peers *Peers, chunks data.Chunks) *activeJob {
	t.Helper()
	a := newActive(t, Options{Self: "manager", State: statetest.Open(t), Leases: p, Peers: peers, Chunks: chunks, Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)})
	a.manager.written = make(map[string]client.Job)
	a.job = client.Job{ID: "job-abc", Node: "manager", Spec: client.JobSpec{Ranks: 2, MinRanks: 2, PerDevice: 1, StageLimit: "15m,elsewhere", Args: []string{"x"}}}
	return a
}

// A script plays the nodes of a job: in its first attempt, the time of rank 1 is over after the job has
// saved a checkpoint, and ranks leave their states if a move is granted.
type script struct {
	t      *testing.T
	chunks *memoryChunks
	pool   *smallPool
	// failing is a rank that leaves no state, lost one whose node is lost in the second attempt; -1 for
	// none.
	failing, lost int

	mu      sync.Mutex
	starts  []*start
	leased  [][]outboard.DeviceID // at each start
	granted bool
	answers sync.WaitGroup // of the question of rank 0's node
	second  chan struct{}  // closed when both nodes have started the second attempt
}

func (s *script) run(b *start, stream *framed.Stream) {
	s.mu.Lock()
	s.starts, s.leased = append(s.starts, b), append(s.leased, s.pool.uses())
	attempt := (len(s.starts) + 1) / 2
	if len(s.starts) == 4 {
		close(s.second)
	}
	s.mu.Unlock()
	if attempt == 2 && b.First == s.lost {
		<-s.second
		stream.Reset(errors.New("no power"))
		return
	}
	first := attempt == 1
	out := &writer{out: stream}
	send := func(m message) {
		if err := out.send(m); err != nil {
			s.t.Errorf("send %+v: %v", m, err)
		}
	}
	if first && b.First == 0 {
		send(message{Saved: &saved{Step: 3, Digest: s.chunks.save(s.t, checkpointFile, "step 3")}})
		send(message{Expired: &expired{Ranks: []int{1}}})
		for {
			m, err := receive(stream)
			if err != nil {
				s.t.Error(err)
			}
			if m.Moves != nil {
				s.granted = m.Moves.Granted
				break
			}
		}
		s.answers.Done()
	}
	if s.answers.Wait(); first && s.granted && b.First != s.failing {
		send(message{Suspended: &suspended{Rank: b.First, Digest: s.chunks.save(s.t, stateName(b.First), "state of "+stateName(b.First))}})
	}
	_ = out.send(message{Exited: &exited{Rank: -1}}) // The manager may end the stream as soon as it has read it.
	_, _ = receive(stream)                           // It stops the run.
	_ = stream.Close()
}

// A stage whose time is over continues on another node: the lease of the node that stays is kept, the
// ranks get their states, and the checkpoint with which the repeated steps began, and nothing counts as
// a restart.
func TestMoveIsNoRestart(t *testing.T) {
	chunks := &memoryChunks{}
	p := newSmallPool("east/0", "north/0", "west/0")
	s := &script{t: t, second: make(chan struct{}), chunks: chunks, pool: p, failing: -1, lost: -1}
	s.answers.Add(1)
	a := elsewhereJob(t, p, serveNodes(t, nil, s.run), chunks)
	a.job.Spec.Restarts = 0
	a.run(t.Context())
	j := a.snapshot()
	if j.State != client.JobSucceeded || j.Attempt != 2 || j.Stages != nil || len(s.starts) != 4 {
		t.Fatalf("%s (%s) in attempt %d, with states %+v, after %d starts", j.State, j.Reason, j.Attempt, j.Stages, len(s.starts))
	}
	want := []client.JobRank{{First: 0, Count: 1, Node: "east", Device: "east/0"}, {First: 1, Count: 1, Node: "west", Device: "west/0"}}
	if !slices.Equal(j.Ranks, want) {
		t.Errorf("the ranks are on %+v, want %+v", j.Ranks, want)
	}
	for i, b := range s.starts[2:] {
		if used := s.leased[2+i]; !slices.Equal(used, []outboard.DeviceID{"east/0", "west/0"}) {
			t.Errorf("rank %d continues while %v are leased", b.First, used)
		}
		if b.Link != s.starts[0].Link || b.Link.Bandwidth != 1e6 {
			t.Errorf("rank %d continues with the link %+v, whose algorithms differ from those of %+v", b.First, b.Link, s.starts[0].Link)
		}
		if b.Checkpoint != "" || b.Repeats != 1 || !slices.Equal(b.Nodes, []outboard.NodeID{"east", "west"}) {
			t.Errorf("rank %d continues with checkpoint %q and the steps of attempt %d, on %v", b.First, b.Checkpoint, b.Repeats, b.Nodes)
		}
		m, err := data.Load(t.Context(), chunks, b.States)
		if err != nil || len(m.Files) != 2 || m.Files[0].Name != "0" || m.Files[1].Name != "1" {
			t.Errorf("the states are %+v, %v", m, err)
		}
	}
	if used := p.uses(); len(used) > 0 || p.held["east/0"] != -1 || p.held["north/0"] != -1 {
		t.Errorf("%v are leased, and devices were leased as often as %v: want one lease of each", used, p.held)
	}
}

// When a node is lost after a move, the ranks start again with the states, and not from the beginning.
func TestLossAfterAMove(t *testing.T) {
	chunks := &memoryChunks{}
	p := newSmallPool("east/0", "north/0", "west/0")
	s := &script{t: t, second: make(chan struct{}), chunks: chunks, pool: p, failing: -1, lost: 1}
	s.answers.Add(1)
	a := elsewhereJob(t, p, serveNodes(t, nil, s.run), chunks)
	a.job.Spec.Restarts = 1
	a.run(t.Context())
	if j := a.snapshot(); j.State != client.JobSucceeded || j.Attempt != 3 || len(s.starts) != 6 {
		t.Fatalf("%s (%s) in attempt %d, after %d starts", j.State, j.Reason, j.Attempt, len(s.starts))
	}
	for _, b := range s.starts[4:] {
		if b.States == "" || b.States != s.starts[2].States || b.Repeats != 1 || !slices.Equal(b.Nodes, []outboard.NodeID{"east", "north"}) {
			t.Errorf("rank %d continues with states %q and the steps of attempt %d, on %v", b.First, b.States, b.Repeats, b.Nodes)
		}
	}
	if used := p.uses(); len(used) > 0 {
		t.Errorf("%v are leased", used)
	}
}

// A kept lease that is lost between two attempts, or in the next one, ends the next one.
func TestKeptLeaseIsWatched(t *testing.T) {
	p := newSmallPool("east/0")
	p.lose = map[outboard.DeviceID]chan struct{}{"east/0": make(chan struct{})}
	n := &nodeRun{node: "east", held: holdLeases(t.Context(), p, []outboard.Lease{{Device: "east/0"}})}
	defer n.held.release()
	close(p.lose["east/0"])
	<-n.held.lost
	for range 2 {
		ctx, lose := context.WithCancelCause(t.Context())
		var watching sync.WaitGroup
		watchLeases(ctx, []*nodeRun{n}, lose, &watching)
		<-ctx.Done()
		watching.Wait()
		if lost, ok := errors.AsType[*lostError](context.Cause(ctx)); !ok || lost.node != "east" {
			t.Errorf("the attempt ends with %v", context.Cause(ctx))
		}
	}
}

// A manager ignores states that it has not asked for, and those of other nodes' ranks; a file that is
// no state makes the states incomplete.
func TestStatesAreChecked(t *testing.T) {
	chunks := &memoryChunks{}
	a := newActive(t, Options{Chunks: chunks})
	n := &nodeRun{node: "east", count: 1}
	a.move = &move{job: a, nodes: []*nodeRun{n}}
	state, other := chunks.save(t, "0", "state"), chunks.save(t, "weights", "state")
	a.move.copyState(t.Context(), n, &suspended{Rank: 0, Digest: state})
	a.move.to = map[*nodeRun]*nodeRun{n: {}}
	for _, rank := range []int{-1, 1} {
		a.move.copyState(t.Context(), n, &suspended{Rank: rank, Digest: chunks.save(t, stateName(rank), "state")})
	}
	if len(a.move.states) > 0 || a.move.err != nil {
		t.Errorf("got %+v, %v, want no states", a.move.states, a.move.err)
	}
	if a.move.copyState(t.Context(), n, &suspended{Rank: 0, Digest: state}); len(a.move.states) != 1 || a.move.err != nil {
		t.Errorf("got %+v, %v, want one state", a.move.states, a.move.err)
	}
	a.move.copyState(t.Context(), n, &suspended{Rank: 0, Digest: other})
	if err := a.finishMove(t.Context(), nil); !isLoss(err) {
		t.Errorf("got %v, want a loss", err)
	}
	if failed := errors.New("failed"); !errors.Is(a.finishMove(t.Context(), failed), failed) {
		t.Error("an attempt that has failed moves")
	}
}

// A checkpoint that is saved after a move is where a lost job continues.
func TestCheckpointReplacesStates(t *testing.T) {
	chunks := &memoryChunks{}
	a := elsewhereJob(t, newSmallPool(), nil, chunks)
	before := &client.JobStages{States: "states", World: 2, Attempt: 1, Checkpoint: "first"}
	a.job.Stages = before
	digest := chunks.save(t, checkpointFile, "step 7")
	a.copyCheckpoint(t.Context(), &nodeRun{out: &writer{out: io.Discard}}, &saved{Step: 7, Digest: digest})
	j := a.snapshot()
	if want := (client.JobStages{World: 2, Attempt: 1, Checkpoint: "first"}); *j.Stages != want || j.Checkpoint.Digest != digest || before.States == "" {
		t.Errorf("checkpoint %+v, stages %+v, want %+v", j.Checkpoint, j.Stages, want)
	}
}

// A program that repeats its steps is told the attempt in which it made them first.
func TestAttemptOfRepeatedSteps(t *testing.T) {
	for repeats, want := range map[int]string{0: "OUTBOARD_ATTEMPT=3", 2: "OUTBOARD_ATTEMPT=2"} {
		r := &run{key: key{"east", "job-abc", 3}, start: &start{World: 1, Count: 1, PerDevice: 1, Repeats: repeats}, leases: make([]outboard.Lease, 1)}
		if env := r.environ(0); !slices.Contains(env, want) {
			t.Errorf("repeating %d: got %q, want %s", repeats, env, want)
		}
	}
}

// A node asks its manager for rank 0 only, one request at a time, and waits no longer than its ranks.
func TestNodeAsksForDevices(t *testing.T) {
	var sent bytes.Buffer
	r := &run{start: &start{First: 1}, out: &writer{out: &sent}}
	if _, err := r.askElsewhere(t.Context(), []int{1}); outboard.KindOf(err) != outboard.Invalid || sent.Len() > 0 {
		t.Errorf("the node of rank 1: %v, %d bytes sent", err, sent.Len())
	}
	r.start.First = 0
	r.elsewhere.finish(&moves{Granted: true}) // No request waits for it.
	ended, end := context.WithCancel(t.Context())
	end()
	if granted, err := r.askElsewhere(ended, []int{1}); granted || outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("after the end: %v, %v", granted, err)
	}
	m, err := receive(&sent)
	if err != nil || m.Expired == nil || !slices.Equal(m.Expired.Ranks, []int{1}) {
		t.Errorf("sent %+v, %v", m, err)
	}
	r.out = &writer{out: answerer(func() { r.elsewhere.finish(&moves{Granted: true}) })}
	if granted, err := r.askElsewhere(t.Context(), []int{1}); !granted || err != nil {
		t.Errorf("got %v, %v, want the manager's answer", granted, err)
	}
}

// An answerer calls itself for each message that is written to it.
type answerer func()

func (a answerer) Write(p []byte) (int, error) {
	a()
	return len(p), nil
}

// A state that a rank has not left is a loss: the ranks start again, from the checkpoint.
func TestMissingStateIsALoss(t *testing.T) {
	chunks := &memoryChunks{}
	p := newSmallPool("east/0", "north/0", "west/0")
	s := &script{t: t, second: make(chan struct{}), chunks: chunks, pool: p, failing: 1, lost: -1}
	s.answers.Add(1)
	a := elsewhereJob(t, p, serveNodes(t, nil, s.run), chunks)
	a.job.Spec.Restarts = 1
	a.run(t.Context())
	if j := a.snapshot(); j.State != client.JobSucceeded || j.Attempt != 2 || len(s.starts) != 4 {
		t.Fatalf("%s (%s) in attempt %d, after %d starts", j.State, j.Reason, j.Attempt, len(s.starts))
	}
	for _, b := range s.starts[2:] {
		if b.Checkpoint == "" || b.States != "" || b.Repeats != 2 {
			t.Errorf("rank %d continues with checkpoint %q, states %q and the steps of attempt %d", b.First, b.Checkpoint, b.States, b.Repeats)
		}
	}
	if used := p.uses(); len(used) > 0 {
		t.Errorf("%v are leased", used)
	}
}

// A stage stays where it is if no device of another node is free, or its node starts no ranks: no
// lease remains.
func TestStageStaysWithoutAnotherDevice(t *testing.T) {
	for name, devices := range map[string][]outboard.DeviceID{
		"no other node":    {"east/0", "north/0", "north/1"},
		"a node refuses":   {"east/0", "north/0", "refusing/0"},
		"excluded as lost": {"east/0", "north/0", "lost/0"},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSmallPool(devices...)
			s := &script{t: t, second: make(chan struct{}), chunks: &memoryChunks{}, pool: p, lost: -1}
			s.answers.Add(1)
			a := elsewhereJob(t, p, serveNodes(t, []outboard.NodeID{"refusing"}, s.run), s.chunks)
			a.excluded["lost"] = exclusion{boot: "boot of lost", until: time.Now().Add(time.Hour)}
			a.run(t.Context())
			if j := a.snapshot(); s.granted || j.State != client.JobSucceeded || j.Attempt != 1 {
				t.Errorf("granted: %v, %s (%s) in attempt %d", s.granted, j.State, j.Reason, j.Attempt)
			}
			if used := p.uses(); len(used) > 0 {
				t.Errorf("%v are leased", used)
			}
		})
	}
}

// All ranks of a node move together, to one node: sums are divided over nodes as before.
func TestRanksOfANodeMoveTogether(t *testing.T) {
	for name, c := range map[string]struct {
		expired []int
		free    []outboard.DeviceID
		want    map[outboard.NodeID]outboard.NodeID
	}{
		"to one with room":        {[]int{3}, []outboard.DeviceID{"a/0", "b/0", "b/1", "c/0", "c/1"}, map[outboard.NodeID]outboard.NodeID{"west": "b"}},
		"not to two nodes":        {[]int{3}, []outboard.DeviceID{"a/0", "b/0"}, nil},
		"two nodes":               {[]int{0, 2}, []outboard.DeviceID{"a/0", "a/1", "b/0", "b/1"}, map[outboard.NodeID]outboard.NodeID{"east": "a", "west": "b"}},
		"as many as have room":    {[]int{0, 2}, []outboard.DeviceID{"a/0", "a/1", "b/0"}, map[outboard.NodeID]outboard.NodeID{"east": "a"}},
		"ranks that do not exist": {[]int{-1, 4}, []outboard.DeviceID{"a/0", "a/1"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			p := newSmallPool(slices.Concat([]outboard.DeviceID{"east/0", "east/1", "west/0", "west/1"}, c.free)...)
			for _, id := range p.devices[:4] {
				p.held[id] = 1
			}
			a := elsewhereJob(t, p, serveNodes(t, nil, nil), nil)
			a.job.Attempt = 1
			m := &move{job: a, hold: func(l []outboard.Lease) *heldLeases { return holdLeases(t.Context(), p, l) }}
			for i, node := range []outboard.NodeID{"east", "west"} {
				m.nodes = append(m.nodes, &nodeRun{node: node, number: i, first: 2 * i, count: 2, leases: make([]outboard.Lease, 2)})
			}
			granted, got := m.leaseElsewhere(t.Context(), c.expired), map[outboard.NodeID]outboard.NodeID{}
			for from, to := range m.to {
				got[from.node] = to.node
				if to.number != from.number || to.first != from.first || to.count != from.count || len(to.leases) != 2 {
					t.Errorf("node %d with %d ranks from %d on becomes %+v", from.number, from.count, from.first, to)
				}
			}
			if granted != (len(c.want) > 0) || !maps.Equal(got, c.want) {
				t.Errorf("granted: %v, %v, want %v", granted, got, c.want)
			}
			if m.leaseElsewhere(t.Context(), []int{0}) && granted {
				t.Error("a second move of one attempt is granted")
			}
			for _, to := range m.to {
				to.held.release()
			}
		})
	}
}

// Of the nodes with a single free device the pool chooses: by the network, and by their free memory.
func TestPoolChoosesTheNodeOfOneDevice(t *testing.T) {
	p := newSmallPool("east/0", "north/0", "west/0")
	m := &move{job: newActive(t, Options{Leases: p})}
	leases := m.leaseOnOneNode(t.Context(), 1, map[outboard.NodeID]bool{"east": true})
	if len(leases) != 1 || !p.last.NoWait || !slices.Equal(p.last.Exclude, []outboard.DeviceID{"east/0"}) {
		t.Errorf("got %+v by the request %+v", leases, p.last)
	}
}

// The next attempt continues with the states unless a checkpoint is later, or it has other ranks.
func TestWhatTheNextAttemptBeginsWith(t *testing.T) {
	states := &client.JobStages{States: "states", World: 2, Attempt: 1, Checkpoint: "first"}
	later := *states
	later.States = ""
	for name, c := range map[string]struct {
		job  client.Job
		want *client.JobStages
	}{
		"stays":            {client.Job{Spec: client.JobSpec{StageLimit: "15m"}}, nil},
		"first":            {client.Job{World: 2, Attempt: 1}, &client.JobStages{World: 2, Attempt: 1}},
		"states":           {client.Job{World: 2, Attempt: 4, Stages: states}, states},
		"later checkpoint": {client.Job{World: 2, Attempt: 4, Stages: &later}, &client.JobStages{World: 2, Attempt: 4, Checkpoint: "last"}},
		"fewer ranks":      {client.Job{World: 1, Attempt: 4, Stages: states}, &client.JobStages{World: 1, Attempt: 4, Checkpoint: "last"}},
	} {
		if c.job.Spec.StageLimit == "" {
			c.job.Spec.StageLimit = "15m,elsewhere"
		}
		if c.job.Attempt > 1 {
			c.job.Checkpoint = &client.JobCheckpoint{Digest: "last"}
		}
		got := nextStages(&c.job, collective.Link{Bandwidth: 5})
		if got != nil {
			got.Bandwidth -= 5
		}
		if (got == nil) != (c.want == nil) || got != nil && *got != *c.want {
			t.Errorf("%s: got %+v, want %+v", name, got, c.want)
		}
	}
}

// resumeState returns the state with which a process of a rank continues, "" for none.
func resumeState(t *testing.T, socket string, rank int) string {
	t.Helper()
	conn, err := ipc.Dial(t.Context(), socket, ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go conn.Serve(func(m *ipc.Message) { m.Close() })
	m, err := conn.Call(t.Context(), "resume", map[string]any{"rank": rank})
	if err != nil {
		t.Fatal(err)
	}
	f := m.File()
	if f == nil {
		return ""
	}
	defer f.Close()
	text, err := io.ReadAll(f)
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

// A node passes the states of its own ranks to their first processes.
func TestStatesAreRestored(t *testing.T) {
	chunks := &memoryChunks{}
	var all data.Manifest
	for rank := range 3 {
		chunks.add(t, &all, stateName(rank), "state of "+stateName(rank))
	}
	digest, err := data.Save(t.Context(), chunks, &all)
	if err != nil {
		t.Fatal(err)
	}
	r := &run{host: &Host{opts: HostOptions{Chunks: chunks}}, dir: t.TempDir(), start: &start{World: 3, First: 1, Count: 2, States: digest}}
	if r.server, err = ranks.Serve(filepath.Join(r.dir, ranksSocket), ranks.Options{}); err != nil {
		t.Fatal(err)
	}
	defer r.server.Close()
	if err := r.restoreStates(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, statesDir)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of the states remains: %v", err)
	}
	for rank, want := range map[int]string{0: "", 1: "state of 1", 2: "state of 2"} {
		if got := resumeState(t, filepath.Join(r.dir, ranksSocket), rank); got != want {
			t.Errorf("rank %d: got %q, want %q", rank, got, want)
		}
	}
	r.start.World = 4
	if err := r.restoreStates(t.Context()); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("three states for four ranks: %v", err)
	}
}
