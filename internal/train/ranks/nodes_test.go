package ranks

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
)

// pipes are the connections between the nodes of a test.
type pipes struct {
	mu    sync.Mutex
	conns map[string]chan net.Conn
	all   []net.Conn
}

func (p *pipes) slot(key string) chan net.Conn {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conns[key] == nil {
		p.conns[key] = make(chan net.Conn, 1)
	}
	return p.conns[key]
}

// pipeMesh is one node's end.
type pipeMesh struct {
	*pipes
	self int
}

func (m pipeMesh) Connect(ctx context.Context, node int, purpose string) (net.Conn, error) {
	if m.self < node {
		near, far := net.Pipe()
		m.mu.Lock()
		m.all = append(m.all, near)
		m.mu.Unlock()
		m.slot(fmt.Sprint(m.self, node, purpose)) <- far
		return near, nil
	}
	select {
	case c := <-m.slot(fmt.Sprint(node, m.self, purpose)):
		return c, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startNodes returns the joined ranks of a group whose rank r is on node nodes[r].
func startNodes(t *testing.T, nodes []int) ([]*rank, *pipes) {
	t.Helper()
	shared := &pipes{conns: make(map[string]chan net.Conn)}
	paths, servers := make(map[int]string), make(map[int]*Server)
	for _, node := range nodes {
		if paths[node] != "" {
			continue
		}
		paths[node] = filepath.Join(t.TempDir(), "ranks.sock")
		s, err := Serve(paths[node], Options{Mesh: pipeMesh{shared, node}, Node: node})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		servers[node] = s
	}
	all := make([]*rank, len(nodes))
	var joining sync.WaitGroup
	for i, node := range nodes {
		all[i] = dial(t, paths[node])
		all[i].server = servers[node]
		joining.Go(func() {
			if err := all[i].request("join", map[string]any{"group": "g", "rank": i, "size": len(nodes), "nodes": nodes}); err != nil {
				t.Errorf("rank %d: %v", i, err)
			}
		})
	}
	joining.Wait()
	return all, shared
}

// everywhere makes the call of each rank at once and returns their errors.
func everywhere(all []*rank, request func(i int) (string, map[string]any)) []error {
	errs := make([]error, len(all))
	var calling sync.WaitGroup
	for i, r := range all {
		calling.Go(func() {
			kind, body := request(i)
			errs[i] = r.request(kind, body, r.file)
		})
	}
	calling.Wait()
	return errs
}

func putFloats(b []byte, values []float64) {
	for i, v := range values {
		binary.LittleEndian.PutUint64(b[8*i:], math.Float64bits(v))
	}
}

func floats(b []byte, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = math.Float64frombits(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return values
}

// Each operation between nodes has the result that it has in one memory, however the ranks are
// distributed. The elements are integers, so that the order of additions does not matter.
func TestOperationsOverNodesEqualThoseOfOne(t *testing.T) {
	for name, nodes := range map[string][]int{
		"one each": {0, 1, 2}, "two nodes": {0, 0, 1, 1}, "unequal": {0, 1, 1}, "not in order": {1, 0, 1, 0}, "one node": {0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			all, _ := startNodes(t, nodes)
			n := len(nodes)
			for _, c := range []collective.Call{
				{Operation: collective.AllReduce, Reduction: collective.Sum},
				{Operation: collective.AllReduce, Reduction: collective.Average},
				{Operation: collective.AllReduce, Reduction: collective.Max},
				{Operation: collective.ReduceScatter, Reduction: collective.Sum},
				{Operation: collective.AllGather},
				{Operation: collective.Broadcast, Root: n - 1},
				{Operation: collective.AllToAll},
			} {
				c.Element, c.Count = collective.Float64, 12
				checkOperation(t, all, c)
			}
			for i, err := range everywhere(all, func(int) (string, map[string]any) {
				return "call", map[string]any{"operation": collective.Barrier}
			}) {
				if err != nil {
					t.Errorf("rank %d in a barrier: %v", i, err)
				}
			}
		})
	}
}

func checkOperation(t *testing.T, all []*rank, c collective.Call) {
	t.Helper()
	want := make([][]byte, len(all))
	for i, r := range all {
		values := make([]float64, c.Count)
		for j := range values {
			values[j] = float64(100*i + j)
		}
		putFloats(r.memory, values)
		words := make([]uint64, c.Count)
		want[i] = bytesOf(words)
		putFloats(want[i], values)
	}
	if err := collective.Local(c, want); err != nil {
		t.Fatal(err)
	}
	errs := everywhere(all, func(int) (string, map[string]any) {
		return "call", map[string]any{
			"operation": c.Operation, "element": c.Element, "reduction": c.Reduction, "count": c.Count, "root": c.Root,
		}
	})
	for i, r := range all {
		from, to := 0, c.Count
		if c.Operation == collective.ReduceScatter {
			own := collective.Part(i, len(all), c.Count)
			from, to = own.From, own.To
		}
		got := floats(r.memory, c.Count)[from:to]
		if errs[i] != nil || fmt.Sprint(got) != fmt.Sprint(floats(want[i], c.Count)[from:to]) {
			t.Errorf("%s: rank %d has %v, %v, want %v", c, i, got, errs[i], floats(want[i], c.Count)[from:to])
		}
	}
}

func TestMessagesBetweenNodes(t *testing.T) {
	all, _ := startNodes(t, []int{0, 1, 1})
	putFloats(all[0].memory, []float64{1, 2})
	for i, err := range everywhere(all, func(i int) (string, map[string]any) {
		switch i {
		case 0:
			return "send", map[string]any{"peer": 2, "tag": 7, "bytes": 16}
		case 2:
			return "receive", map[string]any{"peer": 0, "tag": 7, "bytes": 16}
		}
		return "call", map[string]any{"operation": 99} // refused at once
	}) {
		if (err != nil) != (i == 1) {
			t.Errorf("rank %d: %v", i, err)
		}
	}
	if got := floats(all[2].memory, 2); got[0] != 1 || got[1] != 2 {
		t.Errorf("rank 2 has %v, want what rank 0 sent", got)
	}
}

// More messages than a node holds arrive in their order, once they are received.
func TestManyMessagesBetweenNodes(t *testing.T) {
	all, _ := startNodes(t, []int{0, 1})
	for _, r := range all {
		// The memory is passed with a request that is refused.
		if err := r.request("call", map[string]any{"operation": 99}, r.file); err == nil {
			t.Fatal("an unknown operation was carried out")
		}
	}
	const count = maxLetters + 100
	sent := make(chan error, 1)
	go func() {
		for i := range count {
			putFloats(all[0].memory, []float64{float64(i)})
			if err := all[0].request("send", map[string]any{"peer": 1, "bytes": 8}); err != nil {
				sent <- err
				return
			}
		}
		sent <- nil
	}()
	for i := range count {
		if err := all[1].request("receive", map[string]any{"peer": 0, "bytes": 8}); err != nil {
			t.Fatal(err)
		}
		if got := floats(all[1].memory, 1)[0]; got != float64(i) {
			t.Fatalf("message %d has %v", i, got)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// A rank that sends a message before its group is connected is refused.
func TestMessagesBeforeTheGroupIsConnected(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ranks.sock")
	s, err := Serve(path, Options{Mesh: pipeMesh{&pipes{conns: make(map[string]chan net.Conn)}, 1}, Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	r := dial(t, path)
	// The other node never joins.
	if err := r.conn.Send("join", map[string]any{"group": "g", "rank": 1, "size": 2, "nodes": []int{0, 1}}); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"send", "receive"} {
		err := r.request(kind, map[string]any{"peer": 0, "bytes": 8}, r.file)
		if err == nil || !strings.Contains(err.Error(), "before the reply to join") {
			t.Errorf("%s: %v, want that it is refused", kind, err)
		}
	}
}

// Disagreement between nodes names the ranks, not the nodes, with both lines.
func TestNodesThatDisagree(t *testing.T) {
	all, _ := startNodes(t, []int{0, 0, 1})
	errs := everywhere(all, func(i int) (string, map[string]any) {
		count, site := 4, "train.py:10"
		if i == 2 {
			count, site = 5, "train.py:12"
		}
		return "call", map[string]any{"operation": collective.AllReduce, "element": collective.Float64, "reduction": collective.Sum, "count": count, "site": site}
	})
	for i, err := range errs {
		if err == nil || !strings.Contains(err.Error(), "rank 2 calls") || !strings.Contains(err.Error(), "train.py:10") || !strings.Contains(err.Error(), "train.py:12") {
			t.Errorf("rank %d: %v, want both lines and rank 2", i, err)
		}
	}
}

// A rank that waits for one of another node learns that it has left, or that the connection is gone.
func TestRanksOfOtherNodesThatAreGone(t *testing.T) {
	for name, leave := range map[string]func(all []*rank, p *pipes){
		"left": func(all []*rank, _ *pipes) { all[1].conn.Close() },
		"lost": func(_ []*rank, p *pipes) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, c := range p.all {
				c.Close()
			}
		},
	} {
		for _, kind := range []string{"call", "receive"} {
			t.Run(name+" "+kind, func(t *testing.T) {
				all, p := startNodes(t, []int{0, 1})
				done := make(chan error, 1)
				go func() {
					done <- all[0].request(kind, map[string]any{"operation": collective.Barrier, "peer": 1, "tag": 1, "bytes": 8}, all[0].file)
				}()
				leave(all, p)
				if err := <-done; err == nil || !strings.Contains(err.Error(), "rank 1") && !strings.Contains(err.Error(), "lost") {
					t.Errorf("%v, want that rank 1 is gone", err)
				}
			})
		}
	}
}

// A rank of another node that has left is missed although another rank of its node stays: what it has
// sent before is received, receives and calls that need it fail, and the others exchange messages.
func TestOneOfSeveralRanksOfANodeLeaves(t *testing.T) {
	for _, kind := range []string{"receive", "call"} {
		t.Run(kind, func(t *testing.T) {
			all, _ := startNodes(t, []int{0, 0, 1})
			message := func(r *rank, kind string, peer, tag int) error {
				return r.request(kind, map[string]any{"peer": peer, "tag": tag, "bytes": 8}, r.file)
			}
			if err := message(all[0], "send", 2, 1); err != nil {
				t.Fatal(err)
			}
			waiting := make(chan error, 1)
			go func() {
				waiting <- all[2].request(kind, map[string]any{"operation": collective.Barrier, "peer": 0, "tag": 2, "bytes": 8}, all[2].file)
			}()
			all[0].conn.Close()
			if err := <-waiting; err == nil || !strings.Contains(err.Error(), "rank 0 has left") {
				t.Errorf("%v, want that rank 0 has left", err)
			}
			if kind == "call" {
				return
			}
			if err := message(all[2], "receive", 0, 1); err != nil {
				t.Errorf("what rank 0 had sent: %v", err)
			}
			if err := message(all[2], "receive", 0, 1); err == nil || !strings.Contains(err.Error(), "rank 0 has left") {
				t.Errorf("%v, want that rank 0 has left", err)
			}
			if err := errors.Join(message(all[1], "send", 2, 3), message(all[2], "receive", 1, 3)); err != nil {
				t.Errorf("between the others: %v", err)
			}
			if !all[2].server.LeftElsewhere() {
				t.Error("no rank has left elsewhere, as the node of rank 2 says")
			}
		})
	}
}

// A rank that is lost in a call is named on other nodes, although it is not the first rank of its node.
func TestLostRankOfSeveralOfANodeIsNamed(t *testing.T) {
	all, _ := startNodes(t, []int{0, 1, 1})
	waiting := make(chan error, 2)
	for _, r := range all[:2] {
		go func() { waiting <- r.request("call", allReduce(1, "train.py:1"), r.file) }()
	}
	g := all[1].server.groupOf(t)
	for posted := false; !posted; runtime.Gosched() {
		g.mu.Lock()
		posted = len(g.waiting) > 0
		g.mu.Unlock()
	}
	all[2].conn.Close()
	for range 2 {
		if err := <-waiting; err == nil || !strings.Contains(err.Error(), "rank 2 is lost") {
			t.Errorf("%v, want that rank 2 is lost", err)
		}
	}
}

// groupOf returns the only group of a server.
func (s *Server) groupOf(t *testing.T) *group {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.groups["g"]
}

// A rank that has more calls under way than its node queues ends its group: the other nodes have made
// the call that is refused, and would take the next one for it.
func TestTooManyCallsEndTheGroup(t *testing.T) {
	all, _ := startNodes(t, []int{0, 1})
	if err := all[0].request("call", map[string]any{"operation": 99}, all[0].file); err == nil {
		t.Fatal("an unknown operation was carried out")
	}
	const calls = maxRounds + 2*maxStarted
	errs := make(chan error, calls)
	for range calls {
		go func() { errs <- all[0].request("call", allReduce(1, "train.py:1")) }()
	}
	for range calls {
		if err := <-errs; outboard.KindOf(err) == 0 {
			t.Error("a call has succeeded that the other rank has not made")
		}
	}
	if err := all[1].request("call", allReduce(1, "train.py:1"), all[1].file); err == nil {
		t.Error("the other rank has made a call with a rank that has not")
	}
}

// A rank that leaves a group and goes on, as by destroy_process_group, has not failed.
func TestAnnouncedLeavesAreNoFailures(t *testing.T) {
	all, _ := startNodes(t, []int{0, 1})
	if err := all[0].conn.Send("leave", map[string]any{}); err != nil {
		t.Fatal(err)
	}
	all[0].conn.Close()
	if err := all[1].request("call", map[string]any{"operation": collective.Barrier}, all[1].file); err == nil || !strings.Contains(err.Error(), "rank 0 has left") {
		t.Errorf("%v, want that rank 0 has left", err)
	}
	all[0].server.Close()
	if all[1].server.LeftElsewhere() || len(all[0].server.LeftBefore(0)) > 0 {
		t.Error("the rank counts as one that has ended")
	}
}

// A node knows whether the ranks of another node left before its own: these may have failed because of
// them, and not the other way round.
func TestRanksThatLeftElsewhere(t *testing.T) {
	all, _ := startNodes(t, []int{0, 1})
	done := make(chan error, 1)
	go func() {
		done <- all[0].request("call", map[string]any{"operation": collective.Barrier}, all[0].file)
	}()
	all[1].conn.Close()
	if err := <-done; err == nil {
		t.Fatal("the barrier without rank 1 has succeeded")
	}
	if !all[0].server.LeftElsewhere() {
		t.Error("rank 0 failed first, as its node says")
	}
	all[0].conn.Close()
	all[0].server.Close()
	all[1].server.Close() // It has received all messages of the other node then.
	if all[1].server.LeftElsewhere() {
		t.Error("rank 1 failed because of rank 0, as its node says")
	}
}

// What a rank got before another one left stays valid: a rank that leaves does not cut short the
// call that others still receive.
func TestARankMayLeaveWhileOthersReceiveItsResult(t *testing.T) {
	for range 50 {
		all, _ := startNodes(t, []int{0, 1, 2})
		var calling sync.WaitGroup
		for i, r := range all {
			calling.Go(func() {
				err := r.request("call", map[string]any{"operation": collective.AllReduce, "element": collective.Float64, "reduction": collective.Sum, "count": 1000}, r.file)
				if err != nil {
					t.Errorf("rank %d: %v", i, err)
				}
				r.conn.Close()
			})
		}
		calling.Wait()
	}
}

// lostMesh reaches no node.
type lostMesh struct{}

func (lostMesh) Connect(context.Context, int, string) (net.Conn, error) {
	return nil, net.ErrClosed
}

// What a group over several nodes leaves on this one stays until the job ends: their number is
// bounded, also when their ranks leave at once.
func TestGroupsOverNodesAreBounded(t *testing.T) {
	s, err := Serve(filepath.Join(t.TempDir(), "ranks"), Options{Mesh: lostMesh{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for i := range maxRemoteGroups {
		name := fmt.Sprint(i)
		g, err := s.group(name, 2, []int{0, 1})
		if err != nil {
			t.Fatalf("group %d: %v", i, err)
		}
		<-g.ready
		s.remove(name)
	}
	if _, err := s.group("another", 2, []int{0, 1}); err == nil || !strings.Contains(err.Error(), "has made 4096 groups") {
		t.Errorf("one more: %v", err)
	}
	if _, err := s.group("local", 2, []int{0, 0}); err != nil {
		t.Errorf("one of this node alone: %v", err)
	}
}

// The connections of all groups of a job are bounded, so that a job does not take a node's memory
// with few groups over many nodes.
func TestLinksOfGroupsAreBounded(t *testing.T) {
	s, err := Serve(filepath.Join(t.TempDir(), "ranks"), Options{Mesh: lostMesh{}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	everyNode := make([]int, maxRanks)
	for i := range everyNode {
		everyNode[i] = i
	}
	for i := range maxLinks / (maxRanks - 1) {
		if _, err := s.group(fmt.Sprint(i), maxRanks, everyNode); err != nil {
			t.Fatalf("group %d: %v", i, err)
		}
	}
	if _, err := s.group("another", maxRanks, everyNode); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("one more: %v", err)
	}
	if _, err := s.group("small", 2, []int{0, 1}); err != nil {
		t.Errorf("one over two nodes: %v", err)
	}
}

// The copies that a node makes for an exchange between its ranks count among the job's buffers.
func TestCopiesOfExchangesAreBounded(t *testing.T) {
	r, err := newRemote([]int{0, 0, 1, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	const size = 1 << 10
	r.buffers = &collective.Buffers{Limit: 3*size - 1}
	c := collective.Call{Operation: collective.AllToAll, Element: collective.Uint8, Count: size}
	if err := r.perform(c, make([][]byte, 4)); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("copies of %d bytes: %v", 3*size, err)
	}
}

// silentMesh connects to nodes that send nothing.
type silentMesh struct{ far []net.Conn }

// Connect implements Mesh.
func (m *silentMesh) Connect(context.Context, int, string) (net.Conn, error) {
	near, far := net.Pipe()
	m.far = append(m.far, far)
	return near, nil
}

// A server that is closed while a group connects leaves none of its connections open.
func TestGroupIsClosedWhileItConnects(t *testing.T) {
	r, err := newRemote([]int{0, 1}, 0)
	if err != nil {
		t.Fatal(err)
	}
	r.close(collective.ErrClosed)
	var mesh silentMesh
	if err := r.connect(t.Context(), &mesh, "all", &Options{}, &heldMemory{}); !errors.Is(err, net.ErrClosed) {
		t.Fatalf("it connects: %v", err)
	}
	for _, conn := range mesh.far {
		if _, err := io.Copy(io.Discard, conn); err != nil {
			t.Error(err)
		}
	}
}
