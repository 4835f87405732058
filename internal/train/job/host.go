package job

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/launch"
)

// HostOptions configure a Host.
type HostOptions struct {
	Self outboard.NodeID
	// Mode says which ranks this node starts.
	Mode Mode
	// Check verifies the claim of a lease on one of this node's devices.
	Check func(ctx context.Context, claim []byte) (outboard.Lease, outboard.Node, error)
	// Standing has the leases that stand: ranks end with their leases. nil: the leases are not
	// followed.
	Standing StandingLeases
	Peers    *Peers
	// Fetch returns an artifact from this node or another one.
	Fetch func(ctx context.Context, digest string) ([]byte, error)
	// Chunks keeps checkpoints and data.
	Chunks data.Chunks
	// Discard, if not nil, deletes chunks of superseded checkpoints.
	Discard Discard
	// Objects is the object store through which sums may travel; nil: none.
	Objects collective.Objects
	// Python writes the package with the back end of torch.distributed into a new folder.
	Python func(dir string) error
	// Command is the program that confines itself and becomes a rank: see launch.Confine.
	Command []string
	// Readable are paths that ranks may read beside the system's.
	Readable []string
	// Groups has the control groups of ranks; nil: none.
	Groups *cgroup.Tree
	// RequireGroup refuses ranks where there are no control groups.
	RequireGroup bool
	// Memory returns how many bytes of memory the ranks of a job with these leases of the node's
	// devices may use; nil or 0: no limit.
	Memory func(leases []outboard.Lease) int64
	// Foreign reports whether a process executes foreign code that is no rank's: it may not use the
	// servers of ranks. nil: none does.
	Foreign func(pid int) bool
	// Owner names this node in the folders of its ranks, which lie outside of its data folder. No
	// other node of the machine has it, and the next process of this node has it again; "": the
	// folders of a node that was killed stay.
	Owner string
	Log   *slog.Logger
}

// Mode says which ranks a node starts for jobs of the pool.
type Mode string

// The modes.
const (
	// ModeNone starts no ranks.
	ModeNone Mode = "none"
	// ModeConfined starts ranks that see only the system's files and a folder of their own.
	ModeConfined Mode = "confined"
	// ModeTrusted starts ranks with all rights of the node's user.
	ModeTrusted Mode = "trusted"
)

// ParseMode returns the mode with a name.
func ParseMode(text string) (Mode, error) {
	switch m := Mode(text); m {
	case ModeNone, ModeConfined, ModeTrusted:
		return m, nil
	}
	return ModeNone, outboard.Errorf(outboard.Invalid, "jobs", "%q: want %s, %s or %s", text, ModeNone, ModeConfined, ModeTrusted)
}

// A Host runs ranks on this node.
type Host struct {
	opts HostOptions

	mu      sync.Mutex
	next    chan struct{} // closed at the next change of running
	running map[key]*run
	leased  map[leaseKey]chan struct{} // leases of the runs; a channel is closed when its lease is free
	pids    map[int]*run               // of ranks
	serial  uint32
}

// NewHost returns a Host that runs nothing yet. It first ends and removes the remains of the ranks
// of an earlier process of the same node.
func NewHost(opts HostOptions) *Host {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	// The serial is random to avoid the users of an earlier process of this node, or of another
	// node of the machine, who may have left files or processes.
	h := &Host{opts: opts, serial: rand.Uint32(), next: make(chan struct{}), running: make(map[key]*run), leased: make(map[leaseKey]chan struct{}), pids: make(map[int]*run)}
	h.sweep()
	return h
}

// requestLimit bounds how long a node may take for its request, and registerLimit how long a
// stream waits for the start of its job on this node.
const (
	requestLimit  = 10 * time.Second
	registerLimit = time.Minute
)

// ServeConn serves the streams of another node, or of this one, until the connection ends.
func (h *Host) ServeConn(ctx context.Context, conn *framed.Conn, peer outboard.NodeID) {
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		stream, err := conn.Accept(ctx)
		if err != nil {
			return
		}
		serving.Go(func() {
			if err := h.serve(ctx, stream, peer); err != nil {
				h.opts.Log.Warn("a stream of a job was refused", "peer", peer, "method", stream.Method(), "error", err)
				stream.Reset(err)
			}
		})
	}
}

func (h *Host) serve(ctx context.Context, stream *framed.Stream, peer outboard.NodeID) error {
	p, err := decodePurpose(stream.Header())
	if err != nil {
		return err
	}
	switch stream.Method() {
	case methodRun:
		return h.serveRun(ctx, stream, peer, p)
	case methodMesh:
		r, err := h.await(ctx, p, peer)
		if err != nil {
			return err
		}
		return r.mesh.accept(ctx, p, &streamConn{Stream: stream})
	case methodStore:
		r, err := h.await(ctx, p, peer)
		if err != nil {
			return err
		}
		return r.serveStore(ctx, stream)
	case methodOffer:
		if err := h.allow(); err != nil {
			return err
		}
		return stream.Close()
	}
	return outboard.Errorf(outboard.NotFound, "training job", "this node has no method %.40q", stream.Method())
}

// await waits for the run of a job's attempt, and returns it. peer must be a node of the attempt.
func (h *Host) await(ctx context.Context, p purpose, peer outboard.NodeID) (*run, error) {
	ctx, cancel := context.WithTimeout(ctx, registerLimit)
	defer cancel()
	for {
		h.mu.Lock()
		r, next := h.running[p.key()], h.next
		h.mu.Unlock()
		if r != nil {
			if p.From >= len(r.start.Nodes) || r.start.Nodes[p.From] != peer {
				return nil, outboard.Errorf(outboard.Denied, "training job", "node %s has no ranks of job %s", peer, p.key())
			}
			return r, nil
		}
		select {
		case <-next:
		case <-ctx.Done():
			return nil, outboard.Errorf(outboard.NotFound, "training job", "this node runs no ranks of job %s", p.key())
		}
	}
}

// register makes a run known to the streams of other nodes.
func (h *Host) register(k key, r *run) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.running[k] != nil {
		return outboard.Errorf(outboard.Conflict, "start ranks", "job %s runs here already", k)
	}
	h.running[k] = r
	close(h.next)
	h.next = make(chan struct{})
	return nil
}

func (h *Host) unregister(k key) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.running, k)
}

// Owns reports whether a process is a rank of this node or was started by a rank: such a process
// may not use the node's own sockets. Its session and process group may be its own. Without control
// groups, a process whose parent has ended is not recognized.
func (h *Host) Owns(pid int) bool { return h.owns(pid, nil) }

// owns is Owns without the ranks of the run except.
func (h *Host) owns(pid int, except *run) bool {
	h.mu.Lock()
	var pids []int
	for pid, r := range h.pids {
		if except == nil || r != except {
			pids = append(pids, pid)
		}
	}
	var groups []*cgroup.Group
	for _, r := range h.running {
		if r != except {
			groups = append(groups, r.group)
		}
	}
	h.mu.Unlock()
	return slices.ContainsFunc(groups, func(g *cgroup.Group) bool { return g.Contains(pid) }) || launch.Descends(pid, pids)
}

// refuses reports whether a process may not use the server of a run's ranks. On a node that is not
// root, the ranks of all runs have the node's user, as other processes with foreign code have.
func (h *Host) refuses(r *run, pid int) bool {
	return h.owns(pid, r) || h.opts.Foreign != nil && h.opts.Foreign(pid)
}

// setPID records that a process is a rank of a run, or with nil that it has ended.
func (h *Host) setPID(pid int, r *run) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if r != nil {
		h.pids[pid] = r
		return
	}
	delete(h.pids, pid)
}

// allow returns an error if this node starts no ranks.
func (h *Host) allow() error {
	if h.opts.Mode == ModeNone || h.opts.Mode == "" {
		return outboard.Errorf(outboard.Denied, "start ranks", "node %s runs no programs of jobs: its operator allows them with `outboard up --jobs confined`", h.opts.Self)
	}
	return nil
}

// checkClaims checks that the manager's node holds the leases, and returns them.
func (h *Host) checkClaims(ctx context.Context, claims [][]byte, manager outboard.NodeID) ([]outboard.Lease, error) {
	var leases []outboard.Lease
	for _, claim := range claims {
		lease, _, err := h.opts.Check(ctx, claim)
		if err != nil {
			return nil, err
		}
		if lease.Holder != manager {
			return nil, outboard.Errorf(outboard.Denied, "start ranks", "node %s presents a lease of node %s", manager, lease.Holder)
		}
		leases = append(leases, lease)
	}
	return leases, nil
}

// firstUID is the first user ID of ranks on a node that runs as root; the user IDs of sessions and
// models end below it.
const (
	firstUID = 0x70030000
	uids     = 1 << 16
)

// newUID returns the user ID for the ranks of a run; 0 means that of the node.
func (h *Host) newUID() uint32 {
	if os.Geteuid() != 0 || h.opts.Mode != ModeConfined {
		return 0
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.serial++
	return firstUID + h.serial%uids
}

// serveRun runs the ranks that a manager requests, until the manager says that the ranks of all
// nodes have ended.
func (h *Host) serveRun(ctx context.Context, stream *framed.Stream, manager outboard.NodeID, p purpose) error {
	conn := &streamConn{Stream: stream}
	if err := conn.SetReadDeadline(time.Now().Add(requestLimit)); err != nil {
		return err
	}
	m, err := receive(conn)
	if err != nil || m.Start == nil {
		return errors.Join(outboard.Errorf(outboard.Protocol, "start ranks", "no request"), err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if err := h.allow(); err != nil {
		return err
	}
	if m.Start.Nodes[m.Start.Node] != h.opts.Self {
		return outboard.Errorf(outboard.Invalid, "start ranks", "the request is for node %s, this is %s", m.Start.Nodes[m.Start.Node], h.opts.Self)
	}
	leases, err := h.checkClaims(ctx, m.Start.Claims, manager)
	if err != nil {
		return err
	}
	if err := h.reserveLeases(ctx, leases); err != nil {
		return err
	}
	defer h.freeLeases(leases)
	p.Manager = manager
	r := &run{host: h, key: p.key(), start: m.Start, leases: leases, out: &writer{out: stream}, uid: h.newUID()}
	h.opts.Log.Info("ranks are started", "job", p.Job, "attempt", p.Attempt, "manager", manager, "ranks", m.Start.Count)
	err = r.serve(ctx, stream)
	h.opts.Log.Info("ranks have ended", "job", p.Job, "attempt", p.Attempt, "error", err)
	if err == nil {
		_ = stream.Close() // The manager has already received the result.
	}
	return err
}

// resetLate resets the stream to the manager stopLimit after the end of ctx, unless the returned
// function is called before: ranks could not end while the manager does not read their lines.
func resetLate(ctx context.Context, stream *framed.Stream) (ended func()) {
	over := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		limit := time.NewTimer(stopLimit)
		defer limit.Stop()
		select {
		case <-limit.C:
			stream.Reset(outboard.Errorf(outboard.Unreachable, "", "%w", errStopped))
		case <-over:
		}
	})
	return func() {
		stop()
		close(over)
	}
}
