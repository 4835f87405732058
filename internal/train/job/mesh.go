package job

import (
	"context"
	"net"
	"sync"

	"github.com/outboard-run/outboard"
)

// A mesh connects a run to the runs of the same attempt on other nodes. Of two nodes the one
// with the lower number opens the stream. It implements ranks.Mesh.
type mesh struct {
	peers *Peers
	key   key
	nodes []outboard.NodeID
	self  int

	mu     sync.Mutex
	closed bool
	slots  map[slot]chan net.Conn
}

// A slot identifies a connection from another node that is handed over.
type slot struct {
	from int
	use  string
}

// maxSlots bounds the connections that other nodes have opened and no rank has asked for.
const maxSlots = 4096

func newMesh(peers *Peers, k key, s *start) *mesh {
	return &mesh{peers: peers, key: k, nodes: s.Nodes, self: s.Node, slots: make(map[slot]chan net.Conn)}
}

// Connect implements ranks.Mesh.
func (m *mesh) Connect(ctx context.Context, node int, use string) (net.Conn, error) {
	if node < 0 || node >= len(m.nodes) || node == m.self {
		return nil, outboard.Errorf(outboard.Invalid, "connect ranks", "the job has no other node with the number %d", node)
	}
	if m.self < node {
		p := m.key.purpose(m.self)
		p.For = use
		stream, err := m.peers.open(ctx, m.nodes[node], methodMesh, p)
		if err != nil {
			return nil, err
		}
		return &streamConn{Stream: stream}, nil
	}
	c, err := m.slot(node, use)
	if err != nil {
		return nil, err
	}
	select {
	case conn := <-c:
		m.free(slot{node, use}, c)
		return conn, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// free forgets a slot whose connection was handed over, unless there is another one in it.
func (m *mesh) free(s slot, c chan net.Conn) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.slots[s] == c && len(c) == 0 {
		delete(m.slots, s)
	}
}

func (m *mesh) slot(from int, use string) (chan net.Conn, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.openSlot(slot{from, use})
}

// openSlot returns the channel of a slot. m.mu is held.
func (m *mesh) openSlot(s slot) (chan net.Conn, error) {
	c := m.slots[s]
	if c == nil || m.closed {
		if m.closed || len(m.slots) >= maxSlots {
			return nil, outboard.Errorf(outboard.Exhausted, "connect ranks", "the job has ended here, or has %d connections", maxSlots)
		}
		c = make(chan net.Conn, 1)
		m.slots[s] = c
	}
	return c, nil
}

// accept hands over a connection that another node has opened.
func (m *mesh) accept(_ context.Context, p purpose, conn net.Conn) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := m.openSlot(slot{p.From, p.For})
	if err != nil {
		return err
	}
	select {
	case c <- conn:
		return nil
	default:
		return outboard.Errorf(outboard.Conflict, "connect ranks", "there is such a connection already")
	}
}

// close closes the connections that no rank has asked for.
func (m *mesh) close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, c := range m.slots {
		select {
		case conn := <-c:
			_ = conn.Close() // It is unused.
		default:
		}
	}
}
