package ranks

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/compress"
)

// A Mesh connects the servers of a job's nodes, which have numbers from 0.
type Mesh interface {
	// Connect returns the connection to the server of another node for a purpose, a channel of a
	// group. Both servers call it with the same purpose.
	Connect(ctx context.Context, node int, purpose string) (net.Conn, error)
}

// remote is the part of a group that is on other nodes.
type remote struct {
	nodes  []int             // the nodes with ranks of the group, in the order of their first ranks
	self   int               // index of this server in nodes
	home   []int             // by rank: index in nodes
	first  []int             // by index in nodes: its first rank
	direct bool              // each node has one rank: the ranks of the nodes' group are those of this one
	sums   *compress.Reducer // over group
	// buffers counts the temporary memory of calls.
	buffers *collective.Buffers
	rounds  chan *round

	mu     sync.Mutex // guards what follows until connect has returned
	closed bool
	group  *collective.Group
	mail   []*mailbox // by index in nodes; nil: itself

	// The group's lock guards these.
	calls uint64         // rounds that have begun
	left  map[int]uint64 // by rank of another node that has left: after how many calls
}

// newRemote returns the layout of a group whose rank r is on node nodes[r], nil if all are on self.
func newRemote(nodes []int, self int) (*remote, error) {
	r := &remote{self: -1, left: make(map[int]uint64)}
	for rank, node := range nodes {
		i := slices.Index(r.nodes, node)
		if i < 0 {
			i = len(r.nodes)
			r.nodes, r.first = append(r.nodes, node), append(r.first, rank)
		}
		if node == self {
			r.self = i
		}
		r.home = append(r.home, i)
	}
	switch {
	case r.self < 0:
		return nil, outboard.Errorf(outboard.Invalid, "join", "no rank of the group is on this node")
	case len(r.nodes) == 1:
		return nil, nil //nolint:nilnil // such a group has no remote part
	}
	r.direct = len(r.nodes) == len(nodes)
	return r, nil
}

// localRanks returns the number of the group's ranks on this node.
func (r *remote) localRanks() (n int) {
	for _, i := range r.home {
		if i == r.self {
			n++
		}
	}
	return n
}

// heldMemory counts the memory of this node that the groups of a job hold, beside the ranks' own.
type heldMemory struct {
	letters  atomic.Int64 // bytes of messages of other nodes that no rank has received
	requests atomic.Int64 // bytes of calls and messages that wait for other ranks
	sums     compress.Memory
}

// A rank may make calls that no other rank makes: the memory that they hold is bounded for all
// groups of a job together.
const (
	maxRequests = 64 << 20
	// requestBytes is the memory that a waiting request holds, and pointerBytes that of its group
	// for each rank.
	requestBytes = 512
	pointerBytes = 8
)

// holdRequest counts bytes of a request that waits for other ranks.
func (h *heldMemory) holdRequest(bytes int64) error {
	if h.requests.Add(bytes) > maxRequests {
		h.requests.Add(-bytes)
		return outboard.Errorf(outboard.Exhausted, "", "the calls and messages of this job that wait for other ranks hold %v: wait for the earlier ones first", outboard.Bytes(maxRequests))
	}
	return nil
}

// connect connects the group to the other nodes. It fails if the group is closed meanwhile.
func (r *remote) connect(ctx context.Context, mesh Mesh, name string, o *Options, held *heldMemory) error {
	conns, mail := make([]net.Conn, len(r.nodes)), make([]*mailbox, len(r.nodes))
	var err error
	for i, node := range r.nodes {
		if i == r.self || err != nil {
			continue
		}
		if conns[i], err = mesh.Connect(ctx, node, "group "+name); err != nil {
			continue
		}
		var letters net.Conn
		if letters, err = mesh.Connect(ctx, node, "mail "+name); err == nil {
			mail[i] = newMailbox(letters, &held.letters, r.localRanks())
		}
	}
	var paths []*collective.Datagrams
	if err == nil && o.Gradients.Datagrams {
		paths, err = r.openPaths(ctx, mesh, name)
	}
	var g *collective.Group
	if err == nil {
		g, err = collective.NewGroup(r.self, conns, collective.Options{
			Link: o.Link, Store: storeOf(name, o.Store), Datagrams: paths, Buffers: &held.sums.Buffers,
			Name: func(i int) int { return r.first[i] },
		})
	}
	if err != nil {
		for _, c := range conns {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
		closeMail(mail)
		return err
	}
	r.buffers = &held.sums.Buffers
	r.sums = compress.New(g, o.Gradients, &held.sums)
	return r.open(g, mail)
}

// open sets the connections of the group, or closes them if the group is closed.
func (r *remote) open(g *collective.Group, mail []*mailbox) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		_ = g.Close() // It never fails.
		closeMail(mail)
		return net.ErrClosed
	}
	r.group, r.mail = g, mail
	return nil
}

// storeOf returns the store of a group. The program chooses the group's name, so the name is
// hashed.
func storeOf(name string, s collective.Store) collective.Store {
	sum := sha256.Sum256([]byte(name))
	s.Prefix += hex.EncodeToString(sum[:8]) + "/"
	return s
}

// close ends the connections to the other nodes, and tells these why.
func (r *remote) close(why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.group != nil {
		r.group.Abort(why)
	}
	closeMail(r.mail)
}

func closeMail(mail []*mailbox) {
	for _, m := range mail {
		if m != nil {
			m.close()
		}
	}
}

// start begins the call of all ranks, and returns the function that waits for its end: bufs has the
// buffers of this node's ranks, by rank, and key names the program's buffer. Only all-reduces are
// still running when start returns.
func (r *remote) start(c collective.Call, bufs [][]byte, key uint64) (wait func() error) {
	if c.Operation == collective.AllReduce || c.Operation == collective.ReduceScatter && !r.direct {
		return r.startReduce(c, bufs, key)
	}
	err := r.perform(c, bufs)
	return func() error { return err }
}

// perform makes a call that does not reduce, or a reduce-scatter between nodes of one rank each.
func (r *remote) perform(c collective.Call, bufs [][]byte) error {
	var err error
	switch {
	case c.Operation == collective.Barrier:
		err = r.do(c, nil)
	case r.direct:
		err = r.do(c, bufs[r.first[r.self]])
	case c.Operation == collective.AllGather:
		err = r.gather(c, bufs)
	case c.Operation == collective.Broadcast:
		err = r.broadcast(c, bufs)
	case c.Operation == collective.AllToAll:
		err = r.exchange(c, bufs)
	default:
		err = errors.ErrUnsupported
	}
	return err
}

// do makes a call of the group of nodes.
func (r *remote) do(c collective.Call, buf []byte) error {
	if r.direct && c.Operation != collective.AllReduce && c.Operation != collective.ReduceScatter {
		c.Ordered = false // Without a reduction there is no order.
	}
	return r.group.Do(context.Background(), c, buf)
}

// local returns the buffers of this node, in the order of ranks.
func local(bufs [][]byte) [][]byte {
	return slices.DeleteFunc(slices.Clone(bufs), func(b []byte) bool { return b == nil })
}

// startReduce reduces the buffers of this node and begins to reduce those of the nodes. wait copies
// the result to all buffers. A reduce-scatter between nodes that have several ranks is an all-reduce.
func (r *remote) startReduce(c collective.Call, bufs [][]byte, key uint64) (wait func() error) {
	sum, own := c, local(bufs)
	sum.Operation = collective.AllReduce
	if c.Reduction == collective.Average {
		sum.Reduction = collective.Sum
	}
	if err := collective.Local(sum, own); err != nil {
		return func() error { return err }
	}
	// The schedule alone decides the order of additions, so a result is the same in each run.
	sum.Ordered = false
	reduced := r.sums.Start(context.Background(), sum, own[0], key)
	return func() error {
		if err := reduced(); err != nil {
			return err
		}
		if c.Reduction == collective.Average {
			collective.Divide(own[0], c.Element, len(r.home))
		}
		return distribute(own)
	}
}

// distribute copies the first buffer to the others.
func distribute(own [][]byte) error {
	for _, b := range own[1:] {
		copy(b, own[0])
	}
	return nil
}

func (r *remote) broadcast(c collective.Call, bufs [][]byte) error {
	own := local(bufs)
	if b := bufs[c.Root]; b != nil {
		copy(own[0], b)
	}
	c.Root = r.home[c.Root]
	if err := r.do(c, own[0]); err != nil {
		return err
	}
	return distribute(own)
}

// gather broadcasts the part of each rank.
func (r *remote) gather(c collective.Call, bufs [][]byte) error {
	own, size := local(bufs), c.Element.Size()
	for rank := range r.home {
		span := collective.Part(rank, len(r.home), c.Count)
		part := own[0][span.From*size : span.To*size]
		if b := bufs[rank]; b != nil {
			copy(part, b[span.From*size:span.To*size])
		}
		one := c
		one.Operation, one.Root, one.Count = collective.Broadcast, r.home[rank], span.Len()
		if err := r.do(one, part); err != nil {
			return err
		}
	}
	return distribute(own)
}

// exchange broadcasts the buffer of each rank, of which every rank copies its part. That is more
// than an all-to-all has to send; nodes with one rank each send no more than they have to.
func (r *remote) exchange(c collective.Call, bufs [][]byte) error {
	n := len(r.home)
	size, part := c.Bytes(), c.Bytes()/n
	held := int64(size * (1 + r.localRanks()))
	if err := r.buffers.Reserve(held); err != nil {
		return err
	}
	defer r.buffers.Release(held)
	results := make([][]byte, n)
	words := make([]uint64, (size+7)/8) // aligned to all elements
	whole := bytesOf(words)[:size]
	for rank := range r.home {
		if b := bufs[rank]; b != nil {
			copy(whole, b)
		}
		one := c
		one.Operation, one.Root = collective.Broadcast, r.home[rank]
		if err := r.do(one, whole); err != nil {
			return err
		}
		for to, b := range bufs {
			if b == nil {
				continue
			}
			if results[to] == nil {
				results[to] = make([]byte, size)
			}
			copy(results[to][rank*part:(rank+1)*part], whole[to*part:(to+1)*part])
		}
	}
	for to, b := range bufs {
		copy(b, results[to])
	}
	return nil
}

// describeLoss returns an error that names the ranks of a lost node.
func (r *remote) describeLoss(index int, what string) error {
	var ranks []int
	for rank, i := range r.home {
		if i == index {
			ranks = append(ranks, rank)
		}
	}
	if len(ranks) == 1 {
		return outboard.Errorf(outboard.Unreachable, "", "rank %d %s", ranks[0], what)
	}
	return outboard.Errorf(outboard.Unreachable, "", "ranks %s %s", fmt.Sprint(ranks), what)
}
