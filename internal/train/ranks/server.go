package ranks

import (
	"context"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/unixsock"
)

const (
	maxRanks  = 4096 // of a group
	maxGroups = 1024
	// maxRemoteGroups bounds the groups over several nodes that a job makes in total: their memory
	// is held until the job ends, since other nodes may still need it.
	maxRemoteGroups = 4 * maxGroups
	// maxLinks bounds the connections of these groups to other nodes: a group has two to each of its
	// nodes, whose queues and buffers take some 100 KiB.
	maxLinks = 8192
	// maxRequest bounds a message of a rank in bytes.
	maxRequest = 16 << 10
)

// Options configures a Server; the zero value is for a job on one node.
type Options struct {
	Log *slog.Logger
	// Mesh connects the servers of the job's nodes, of which this one has the number Node; nil:
	// there are no other nodes.
	Mesh Mesh
	Node int
	// Link is the slowest link between the nodes: all servers of the job have the same.
	Link collective.Link
	// Gradients says how sums are sent between nodes: all servers of the job have the same.
	Gradients compress.Spec
	// Store is the object store through which sums may travel; each group has its own prefix behind
	// that of Store.
	Store collective.Store
	// Checkpoint, if not nil, stores the file of a checkpoint, of any size, and returns when the
	// checkpoint counts.
	Checkpoint func(ctx context.Context, f *os.File, number int) error
	// Profile, if not nil, stores the profile that a rank has measured, and returns when it is
	// stored; f is the rank's file, a regular one of at most MaxProfile bytes when it was received.
	Profile func(ctx context.Context, f *os.File, rank int) error
	// Read, if not nil, copies bytes of a file of the job's dataset into buf; next are the files
	// that the rank reads after it.
	Read func(ctx context.Context, name string, at int64, buf []byte, next []string) error
	// StageLimit is the time limit of a rank's process, after which another one continues; 0: none.
	// FirstRank and Ranks are the ranks of this node. With Ranks the caller calls Ended.
	StageLimit       time.Duration
	FirstRank, Ranks int
	// Elsewhere, if not nil, reports whether the next processes of ranks whose time is over run on
	// other nodes. Then all ranks of the job end, and Moved, if not nil, stores the state of each of
	// this node, of any size, for RestoreState of another server.
	Elsewhere func(ctx context.Context, expired []int) (bool, error)
	Moved     func(ctx context.Context, f *os.File, rank int) error
	// Decided, if not nil, is called with each decision that the server makes for a rank.
	Decided func(Decision)
	// Failed, if not nil, is called when a group ends because of another node.
	Failed func(error)
	// Refuses, if not nil, reports whether a process that connects is refused: the user who can open
	// the socket may have other processes that execute foreign code.
	Refuses func(pid int) bool
}

// A Server serves the ranks of one job on one node.
type Server struct {
	opts      Options
	life      context.Context //nolint:containedctx // of the server
	working   sync.WaitGroup
	listener  *net.UnixListener
	stop      context.CancelFunc
	done      chan struct{}
	held      heldMemory
	deciding  sync.Mutex    // held while a decision for a rank is made
	reads     chan struct{} // has a value for each running read
	suspended suspended

	mu     sync.Mutex
	groups map[string]*group
	// sums are the reducers of all groups with a remote part.
	sums []*compress.Reducer
	// closing are the groups with a remote part: other nodes may still need data that this node has
	// sent, after its own ranks have left.
	closing []*remote
	links   int   // of all of them
	ended   int   // ranks that have ended for good
	gone    []int // processes that have left a group, in this order
	// leftElsewhere says that ranks of another node left a group before any process of this node.
	leftElsewhere bool
}

// Serve listens at path, a socket that only this user can open, until the server is closed.
func Serve(path string, opts Options) (*Server, error) {
	l, err := ipc.Listen(path)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	s := &Server{opts: opts, life: ctx, listener: l, stop: stop, done: make(chan struct{}), reads: make(chan struct{}, maxServerReads), groups: make(map[string]*group)}
	go func() {
		defer close(s.done)
		acceptor.Serve(ctx, l, l.AcceptUnix, acceptor.Options{Name: "ranks", Log: opts.Log, MaxConns: maxRanks}, s.serve)
	}()
	return s, nil
}

// Close ends all connections and waits for them.
func (s *Server) Close() error {
	s.stop()
	<-s.done
	s.mu.Lock()
	for _, g := range s.closing {
		g.close(collective.ErrClosed)
	}
	s.mu.Unlock()
	s.working.Wait()
	s.suspended.close()
	return nil
}

// Sums returns the counts of the sums compressed between nodes so far.
func (s *Server) Sums() (all compress.Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.sums {
		all.Add(r.Stats())
	}
	return all
}

func (s *Server) addSums(r *compress.Reducer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sums = append(s.sums, r)
}

func (s *Server) serve(ctx context.Context, c *net.UnixConn) {
	if s.opts.Refuses != nil {
		if err := unixsock.CheckPeer(c, s.check); err != nil {
			s.opts.Log.Warn("peer refused", "socket", "ranks.sock", "error", err)
			_ = c.Close()
			return
		}
	}
	conn := ipc.New(c, ipc.Options{MaxReceived: maxRequest})
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	life, end := context.WithCancel(ctx)
	m := &member{server: s, conn: conn, life: life}
	if peer, err := conn.Peer(); err == nil {
		m.pid = peer.PID
	}
	defer m.leave()
	defer end()
	conn.Serve(m.handle)
}

// check returns an error if a process is no rank of the job, nor a program that it has started.
func (s *Server) check(pid int) error {
	if pid != 0 && s.opts.Refuses(pid) {
		return outboard.Errorf(outboard.Denied, "connect to the ranks' server", "process %d belongs to another job or app, or is gone", pid)
	}
	return nil
}

// group returns the group with a name, and creates it for the first rank that joins.
func (s *Server) group(name string, size int, nodes []int) (*group, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.groups[name]
	if g != nil {
		return g, nil
	}
	if size < 1 || size > maxRanks || len(name) > 256 {
		return nil, outboard.Errorf(outboard.Invalid, "join", "group %.40q of %d ranks: want 1 to %d", name, size, maxRanks)
	}
	if len(s.groups) >= maxGroups {
		return nil, outboard.Errorf(outboard.Exhausted, "join", "there are %d groups", len(s.groups))
	}
	var r *remote
	if s.opts.Mesh != nil && len(nodes) > 0 {
		if len(nodes) != size {
			return nil, outboard.Errorf(outboard.Invalid, "join", "%d nodes for %d ranks", len(nodes), size)
		}
		var err error
		if r, err = newRemote(nodes, s.opts.Node); err != nil {
			return nil, err
		}
		if r != nil {
			if err := s.addLinks(r); err != nil {
				return nil, err
			}
		}
	}
	g = newGroup(size, r, &s.held)
	s.groups[name] = g
	if r != nil {
		s.closing = append(s.closing, r)
		s.working.Go(func() { s.serveRemote(g, name) })
	}
	return g, nil
}

// addLinks counts a group over several nodes. s.mu is held.
func (s *Server) addLinks(r *remote) error {
	const again = "make groups once and use them again"
	links := s.links + len(r.nodes) - 1
	if s.opts.Gradients.Datagrams {
		links += min(2, len(r.nodes)-1) // To its neighbours in the ring.
	}
	switch {
	case len(s.closing) >= maxRemoteGroups:
		return outboard.Errorf(outboard.Exhausted, "join", "the job has made %d groups over several nodes: "+again, len(s.closing))
	case links > maxLinks:
		return outboard.Errorf(outboard.Exhausted, "join", "the job's groups have %d connections to other nodes, and this one needs %d more, of %d: "+again, s.links, links-s.links, maxLinks)
	}
	s.links = links
	return nil
}

func (s *Server) remove(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.groups, name)
}

// A member is one rank's connection.
type member struct {
	server *Server
	conn   *ipc.Conn
	pid    int             // of the rank's process; 0 if it ended at once
	life   context.Context //nolint:containedctx // of the connection
	name   string          // of the group
	group  *group          // nil before join
	rank   int
	// leaves says that the process has announced that it leaves the group.
	leaves bool
	// messages says that the connection is one for the messages of a rank that has joined by another
	// connection.
	messages bool
	// memory is the rank's memory, and past are earlier mappings that running calls may still use.
	memory []byte
	past   [][]byte
	// busy counts the operations of other nodes, or of the dataset's store, that use this rank's
	// memory, and reading the reads among them.
	busy    sync.WaitGroup
	reading atomic.Int32
	saving  atomic.Bool // a checkpoint, a profile or a state, or an elsewhere request
}

func (m *member) reply(to *ipc.Message, err error) { _ = m.conn.Reply(to, nil, err) }

func (m *member) leave() {
	if m.group != nil && !m.messages && !m.leaves {
		m.server.noteLeft(m.pid) // Before others are told.
	}
	switch {
	case m.group == nil:
	case m.messages:
		m.group.leaveMessages(m)
	case m.group.leave(m.rank, m.leaves):
		m.server.remove(m.name)
	}
	m.busy.Wait()
	// No operation uses the member's memory any more.
	for _, b := range append(m.past, m.memory) {
		if b != nil {
			_ = unix.Munmap(b)
		}
	}
}

// noteLeft records that a process has left a group without having announced it.
func (s *Server) noteLeft(pid int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.gone, pid) {
		s.gone = append(s.gone, pid)
	}
}

// noteLeftElsewhere records that the ranks of another node have left a group.
func (s *Server) noteLeftElsewhere() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leftElsewhere = s.leftElsewhere || len(s.gone) == 0
}

// LeftElsewhere reports whether the ranks of another node left a group before any rank of this node
// did: a rank of this node may have failed because of them.
func (s *Server) LeftElsewhere() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leftElsewhere
}

// LeftBefore returns the processes of ranks that left a group before a process did: it may have failed
// because of one of them.
func (s *Server) LeftBefore(pid int) []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i := slices.Index(s.gone, pid); i >= 0 {
		return slices.Clone(s.gone[:i])
	}
	return slices.Clone(s.gone)
}

// request has the fields of all requests.
type request struct {
	Group string `json:"group"`
	Rank  int    `json:"rank"`
	Size  int    `json:"size"`
	Nodes []int  `json:"nodes"`
	// Messages asks to join with a connection for messages, of a rank that has joined already.
	Messages bool `json:"messages"`

	Offset int `json:"offset"`
	Bytes  int `json:"bytes"`
	Peer   int `json:"peer"`
	Tag    int `json:"tag"`

	Operation collective.Operation `json:"operation"`
	Element   collective.Element   `json:"element"`
	Reduction collective.Reduction `json:"reduction"`
	Count     int                  `json:"count"`
	Whole     int                  `json:"whole"`
	First     int                  `json:"first"`
	Root      int                  `json:"root"`
	Site      string               `json:"site"`
	// Buffer names the program's buffer: its address.
	Buffer uint64 `json:"buffer"`
	Number int    `json:"number"`

	Name string   `json:"name"`
	At   int64    `json:"at"`
	Next []string `json:"next"`

	Subject string `json:"subject"`

	Expired []int `json:"expired"`
	Moves   bool  `json:"moves"`
}

// handle executes a request. Requests that wait for other ranks are answered later.
func (m *member) handle(msg *ipc.Message) {
	defer msg.Close()
	if err := m.perform(msg); err != nil {
		m.reply(msg, err)
	}
}

func (m *member) perform(msg *ipc.Message) error {
	var r request
	if err := msg.Decode(&r); err != nil {
		return err
	}
	switch msg.Type {
	case "join":
		return m.join(msg, &r)
	case "checkpoint":
		return m.checkpoint(msg, r.Number)
	case "profile":
		return m.profile(msg, r.Rank)
	case "read":
		return m.read(msg, &r)
	case "decide":
		return m.decide(msg, &r)
	case "suspend":
		return m.suspend(msg, &r)
	case "elsewhere":
		return m.elsewhere(msg, r.Expired)
	case "resume":
		return m.resume(msg, r.Rank)
	}
	if m.group == nil {
		return outboard.Errorf(outboard.Protocol, "", "%w", errNotJoined)
	}
	if err := m.replaceMemory(msg); err != nil {
		return err
	}
	if m.messages && msg.Type != "send" && msg.Type != "receive" {
		return outboard.Errorf(outboard.Protocol, "", "%.40q on a connection for messages", msg.Type)
	}
	switch msg.Type {
	case "leave":
		m.leaves = true // Its connection ends next.
		return nil
	case "detach":
		return m.detach(msg)
	case "call":
		return m.call(msg, &r)
	case "send", "receive":
		return m.exchange(msg, &r)
	}
	return outboard.Errorf(outboard.Protocol, "", "unknown request %.40q", msg.Type)
}

func (m *member) join(msg *ipc.Message, r *request) error {
	if m.group != nil {
		return outboard.Errorf(outboard.Protocol, "join", "this connection has joined a group")
	}
	if r.Messages {
		return m.joinMessages(msg, r)
	}
	g, err := m.server.group(r.Group, r.Size, r.Nodes)
	if err != nil {
		return err
	}
	if err := g.join(r.Rank, r.Size, m); err != nil {
		return err
	}
	m.group, m.name, m.rank = g, r.Group, r.Rank
	if known, left := m.server.left(); known {
		g.failIncomplete(left)
	}
	answer := joined{Piece: g.piece(m.server.opts.Gradients)}
	if g.remote == nil {
		_ = m.conn.Reply(msg, answer, nil)
		return nil
	}
	m.server.working.Go(func() {
		<-g.ready
		g.mu.Lock()
		defer g.mu.Unlock()
		_ = m.conn.Reply(msg, answer, g.failed)
	})
	return nil
}

// joinMessages adds a connection for messages to a rank that has joined a group.
func (m *member) joinMessages(msg *ipc.Message, r *request) error {
	m.server.mu.Lock()
	g := m.server.groups[r.Group]
	m.server.mu.Unlock()
	if g == nil || !g.hasJoined(r.Rank) {
		return outboard.Errorf(outboard.Invalid, "join", "rank %d has not joined the group %.40q", r.Rank, r.Group)
	}
	m.group, m.name, m.rank, m.messages = g, r.Group, r.Rank, true
	m.reply(msg, nil)
	return nil
}

// maxReads bounds the pending reads of a connection, and maxServerReads the reads of all
// connections that run at once: each holds a chunk of the dataset in the node's memory.
const (
	maxReads       = 16
	maxServerReads = 64
)

// read copies bytes of the job's dataset into the rank's memory, and answers when they have
// arrived.
func (m *member) read(msg *ipc.Message, r *request) error {
	const op = "read the dataset"
	if err := m.replaceMemory(msg); err != nil {
		return err
	}
	read := m.server.opts.Read
	if read == nil {
		return outboard.Errorf(outboard.Invalid, op, "this job streams none: submit it with --dataset NAME --stream")
	}
	buf, err := span(m.memory, r.Offset, r.Bytes)
	if err != nil {
		return outboard.Errorf(outboard.Invalid, op, "%w", err)
	}
	if m.reading.Add(1) > maxReads {
		m.reading.Add(-1)
		return outboard.Errorf(outboard.Exhausted, op, "more than %d reads are under way", maxReads)
	}
	held := r.held()
	if err := m.server.held.holdRequest(held); err != nil {
		m.reading.Add(-1)
		return err
	}
	request := pending(msg)
	m.busy.Go(func() {
		defer m.reading.Add(-1)
		defer m.server.held.requests.Add(-held)
		m.reply(request, m.readWhenFree(func() error { return read(m.life, r.Name, r.At, buf, r.Next) }))
	})
	return nil
}

// held returns how many bytes a read holds while it waits.
func (r *request) held() int64 {
	n := requestBytes + len(r.Name)
	for _, name := range r.Next {
		n += len(name) + 2*pointerBytes
	}
	return int64(n)
}

// readWhenFree runs a read once fewer than maxServerReads others run.
func (m *member) readWhenFree(read func() error) error {
	select {
	case m.server.reads <- struct{}{}:
	case <-m.life.Done():
		return m.life.Err()
	}
	defer func() { <-m.server.reads }()
	return read()
}

// maxPast bounds how often a rank may replace its memory.
const maxPast = 64

// replaceMemory maps the memory that comes with a request, if one does.
func (m *member) replaceMemory(msg *ipc.Message) error {
	f := msg.File()
	if f == nil {
		return msg.Lost()
	}
	defer f.Close()
	if len(m.past) >= maxPast {
		return outboard.Errorf(outboard.Exhausted, "rank's memory", "replaced %d times: share more at once", maxPast)
	}
	b, err := mapMemory(f)
	if err != nil {
		return err
	}
	if m.memory != nil {
		m.past = append(m.past, m.memory)
	}
	m.memory = b
	return nil
}

func (m *member) call(msg *ipc.Message, r *request) error {
	c := collective.Call{
		Operation: r.Operation, Element: r.Element, Reduction: r.Reduction, Count: r.Count, Whole: r.Whole, First: r.First,
		Root: r.Root, Ordered: true, Site: r.Site,
	}
	if err := c.Check(m.group.size); err != nil {
		return outboard.Errorf(outboard.Invalid, "", "%w", err)
	}
	buf, err := span(m.memory, r.Offset, c.Bytes())
	if err != nil {
		return outboard.Errorf(outboard.Invalid, "", "%w", err)
	}
	return m.group.call(m.rank, &post{member: m, request: pending(msg), call: c, buf: buf, key: r.Buffer})
}

// pending returns the parts of a request that a reply needs: the rest is not kept while the request
// waits.
func pending(msg *ipc.Message) *ipc.Message {
	return &ipc.Message{Header: ipc.Header{Type: msg.Type, ID: msg.ID}}
}

func (m *member) exchange(msg *ipc.Message, r *request) error {
	if r.Peer < 0 || r.Peer >= m.group.size || r.Peer == m.rank {
		return outboard.Errorf(outboard.Invalid, "", "rank %d of %d can't exchange messages with rank %d", m.rank, m.group.size, r.Peer)
	}
	buf, err := span(m.memory, r.Offset, r.Bytes)
	if err != nil {
		return outboard.Errorf(outboard.Invalid, "", "%w", err)
	}
	a := address{from: m.rank, to: r.Peer, tag: r.Tag}
	if msg.Type == "receive" {
		a.from, a.to = a.to, a.from
	}
	return m.group.exchange(a, &pendingMessage{member: m, request: pending(msg), buf: buf, receive: msg.Type == "receive", site: r.Site})
}
