package node

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/sandbox"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/job"
	"github.com/outboard-run/outboard/internal/train/object"
	"github.com/outboard-run/outboard/python"
)

// jobsDir is the folder in a node's data folder for the lines of training jobs.
const jobsDir = "jobs"

// jobs are the training jobs of a node: the jobs that were submitted to it, and the ranks that it
// runs for the jobs of all nodes.
type jobs struct {
	manager *job.Manager
	host    *job.Host
	peers   *job.Peers
}

// openJobs follows the jobs of the pool and prepares to run ranks.
func openJobs(ctx context.Context, n *Node) (lifecycle.Resource, error) {
	log := n.opts.Log.With("plane", "train", "node", n.self.ID)
	mode, err := job.ParseMode(n.opts.Jobs)
	if err != nil {
		return nil, err
	}
	bucket, err := jobBucket(n)
	if err != nil {
		return nil, err
	}
	chunks := data.Chunks(data.StoreChunks{Store: n.artifacts})
	var objects collective.Objects
	if bucket != nil {
		chunks, objects = data.Cached{Near: chunks, Objects: bucket}, bucket
	}
	discard := func(ctx context.Context, digests []string, usedUntil time.Time) error {
		return collectorOf(n).discard(ctx, digests, usedUntil)
	}
	j := &jobs{peers: &job.Peers{Dial: dialJobs(n.peers)}}
	j.host = job.NewHost(job.HostOptions{
		Self: n.self.ID, Mode: mode, Check: n.pool.Check, Standing: n.pool, Peers: j.peers, Fetch: jobFiles{n.artifacts}.fetch, Chunks: chunks, Discard: discard,
		Objects: objects, Python: python.Extract, Command: append(slices.Clone(n.opts.Helper), "rank"), Readable: n.opts.Sandbox.Readable, Groups: n.groups,
		RequireGroup: slices.Contains(n.opts.Sandbox.Require, sandbox.Cgroup), Memory: rankMemory(n.host, n.self.Devices), Owner: folderKey(n.folder), Log: log,
		Foreign: func(pid int) bool { return n.host.Owns(pid) || n.identities.tenantOf(pid) != "" },
	})
	j.manager, err = job.Open(ctx, job.Options{
		Self: n.self.ID, State: n.state, Leases: n.pool, Peers: j.peers, Chunks: chunks, Discard: discard, Dir: absolute(n.folder.at(jobsDir)),
		Metrics: job.NewMetrics(n.registry), Log: log,
	})
	if err != nil {
		return nil, err
	}
	n.jobs.Store(j)
	return j, nil
}

// jobBucket returns the bucket for datasets, checkpoints and gradients, nil if there is none.
func jobBucket(n *Node) (*object.Bucket, error) {
	if n.opts.Objects.Bucket == "" {
		return nil, nil //nolint:nilnil // a node needs none
	}
	return object.Open(n.opts.Objects)
}

// rankMemory returns a function that bounds the memory of the ranks on leases of a node's devices,
// in bytes.
func rankMemory(host *lend.Host, devices []outboard.Device) func([]outboard.Lease) int64 {
	return func(leases []outboard.Lease) int64 {
		specs := make([]lend.Spec, len(leases))
		for i, l := range leases {
			specs[i].Lease = l
			if k := slices.IndexFunc(devices, func(d outboard.Device) bool { return d.ID == l.Device }); k >= 0 {
				specs[i].Device = devices[k]
			}
		}
		return host.GroupMemory(specs)
	}
}

// Close implements lifecycle.Resource.
func (j *jobs) Close() error { return errors.Join(j.manager.Close(), j.peers.Close()) }

// ownsForeign returns a function that reports whether a process is a worker, a rank, or that of a
// tenant, or descends from one.
func ownsForeign(n *Node) func(pid int) bool {
	owns := ownsProcess(n.host, &n.jobs)
	return func(pid int) bool { return owns(pid) || n.tenants.Owns(pid) }
}

// ownsProcess returns a function that reports whether a process is a worker or a rank of a node,
// or descends from one.
func ownsProcess(workers *lend.Host, p *jobsPointer) func(pid int) bool {
	return func(pid int) bool {
		if workers.Owns(pid) {
			return true
		}
		j := p.Load()
		return j != nil && j.host.Owns(pid)
	}
}

// dialJobs returns a function that connects to a node for the ranks of jobs.
func dialJobs(s *peerServer) func(context.Context, outboard.NodeID) (*framed.Conn, error) {
	return func(ctx context.Context, to outboard.NodeID) (*framed.Conn, error) {
		member, ok := pool.WaitForNode(ctx, s.pool, to)
		if !ok {
			return nil, outboard.Errorf(outboard.Unreachable, "node "+string(to), "it is not in the pool")
		}
		return framed.Dial(ctx, member.Addr, s.identity.ClientTLS(to, member.Fingerprint, job.Protocol), bothWays(s.framed))
	}
}

// bothWays returns the options of a connection for jobs: collectives send and receive at once.
func bothWays(o framed.Options) framed.Options {
	o.BothWays = true
	return o
}

// serveJobs serves the streams of another node for the ranks of jobs.
func (s *peerServer) serveJobs(ctx context.Context, nc net.Conn, slot *peerSlot) error {
	j := s.jobs.Load()
	if j == nil {
		return outboard.Errorf(outboard.Unreachable, "training job", "this node is starting")
	}
	conn := framed.Server(nc, bothWays(s.framedOptions(s.identity.ServerTLS(job.Protocol))))
	defer conn.Close()
	peer, err := s.authenticate(ctx, conn)
	if err != nil {
		return err
	}
	if peer.Session {
		return outboard.Errorf(outboard.Denied, "training job", "a session of node %s is no node", peer.Node)
	}
	if err := slot.authenticated(peer.Node); err != nil {
		return err
	}
	j.host.ServeConn(ctx, conn, peer.Node)
	return nil
}

// jobFiles fetches the folders of jobs.
type jobFiles struct{ store *artifact.Store }

// fetch returns an archive, from another node if this one does not have it.
func (f jobFiles) fetch(ctx context.Context, digest string) ([]byte, error) {
	if err := f.store.Ensure(ctx, digest); err != nil {
		return nil, err
	}
	size, err := f.store.Size(digest)
	if err != nil {
		return nil, err
	}
	if size > job.MaxFiles {
		return nil, outboard.Errorf(outboard.Exhausted, "", "the job's files have %v: want %v at most", outboard.Bytes(size), outboard.Bytes(job.MaxFiles))
	}
	return f.store.Read(ctx, digest)
}

// jobsPointer gives the parts of a node that start earlier access to its jobs.
type jobsPointer = atomic.Pointer[jobs]
