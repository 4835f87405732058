package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/cgroup"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/compress"
	"github.com/outboard-run/outboard/internal/train/data"
	"github.com/outboard-run/outboard/internal/train/launch"
	"github.com/outboard-run/outboard/internal/train/ranks"
)

// A run is one attempt of a job on this node.
type run struct {
	host   *Host
	key    key
	start  *start
	leases []outboard.Lease // by claim
	out    *writer
	uid    uint32

	dir     string
	dataset *data.Reader // nil unless ranks read it through the node
	server  *ranks.Server
	mesh    *mesh
	group   *cgroup.Group
	memory  outboard.Bytes // of all ranks at most; 0: no limit
	// port is the port at which the ranks of this node reach the store: that of rank 0's process,
	// or that of relay.
	port    int
	relay   net.Listener
	relayed sync.WaitGroup
	life    context.Context //nolint:containedctx // of the run
	stop    context.CancelFunc
	lost    atomic.Bool // a group has ended because of another node
	opened  bool

	checkpoints savedCheckpoints
	trail       checkpointTrail
	elsewhere   elsewhereRequest
}

// socketVariable names the server of collective calls in a rank's environment.
const socketVariable = "OUTBOARD_RANKS_SOCKET"

// Names in a run's folder.
const (
	filesDir  = "files"
	pythonDir = "python"
	// checkpointDir and dataDir appear in errors, too.
	checkpointDir = "checkpoint"
	dataDir       = "data"
	ranksSocket   = "ranks.sock"
	maxUnpacked   = 4 << 30
	maxFileCount  = 20_000
)

// open prepares the folder, the server of collective calls and the path to the store.
func (r *run) open(ctx context.Context) error {
	// The folder is not in the node's data folder, which no other user may enter.
	dir, err := os.MkdirTemp("", r.host.folderPrefix())
	if err != nil {
		return err
	}
	r.dir = dir
	if err := r.start.resources().CheckRoom(dir, r.start.Count); err != nil {
		return fmt.Errorf("start ranks on node %s: %w", r.host.opts.Self, err)
	}
	if err := r.prepareFiles(ctx); err != nil {
		return err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	r.life, r.stop = life, stop
	socket := filepath.Join(r.dir, ranksSocket)
	r.mesh = newMesh(r.host.opts.Peers, r.key, r.start)
	opts := ranks.Options{
		Checkpoint: r.saveCheckpoint, Decided: func(d ranks.Decision) { _ = r.out.send(message{Decided: &d}) }, // As in launch.
		Log: r.host.opts.Log, Node: r.start.Node, Link: r.start.Link, Failed: func(error) { r.lost.Store(true) },
		StageLimit: r.start.resources().Limit(), FirstRank: r.start.First, Ranks: r.start.Count,
		Refuses: func(pid int) bool { return r.host.refuses(r, pid) },
	}
	if len(r.start.Nodes) > 1 {
		opts.Mesh = r.mesh
	}
	if r.dataset != nil {
		opts.Read = r.dataset.Read
	}
	if r.start.Profile {
		opts.Profile = r.sendProfile
	}
	if r.start.resources().Elsewhere() {
		opts.Elsewhere, opts.Moved = r.askElsewhere, r.sendState
	}
	if opts.Gradients, err = compress.Parse(r.start.Gradients); err != nil {
		return err
	}
	if opts.Gradients.Method == compress.Store && r.host.opts.Objects == nil {
		return outboard.Errorf(outboard.Invalid, "start ranks", "node %s has no object store for gradients: start it with `outboard up --objects`", r.host.opts.Self)
	}
	opts.Store = collective.Store{Objects: r.host.opts.Objects, Prefix: fmt.Sprintf("sums/%s/%s/%d/", r.key.job, r.key.manager, r.key.attempt)}
	if r.server, err = ranks.Serve(socket, opts); err != nil {
		return err
	}
	if err := r.restoreStates(ctx); err != nil {
		return fmt.Errorf("restore the states of stages: %w", err)
	}
	if err := r.openStore(life); err != nil {
		return err
	}
	if err := r.makeGroup(); err != nil {
		return err
	}
	if err := r.chownFiles(socket); err != nil {
		return err
	}
	if err := r.host.register(r.key, r); err != nil {
		return err
	}
	r.opened = true
	return nil
}

// maxTasks bounds the processes and threads of the ranks on one lease. PyTorch starts some for each
// processor, and its loaders more.
const maxTasks = 4096

// makeGroup makes the control group of the run's ranks, which bounds their resources by their
// leases. On a machine without control groups there is none, unless the node's operator requires it.
func (r *run) makeGroup() (err error) {
	limits := cgroup.Limits{Tasks: maxTasks * len(r.leases), Weight: cgroup.DefaultWeight, Load: 2}
	if r.host.opts.Memory != nil {
		limits.Memory = r.host.opts.Memory(r.leases)
	}
	r.memory = outboard.Bytes(limits.Memory)
	groups := r.host.opts.Groups
	if err := groups.Err(); err != nil && r.host.opts.RequireGroup {
		return outboard.Errorf(outboard.Denied, "start ranks", "node %s lacks what --sandbox require= demands: control groups (%w)", r.host.opts.Self, err)
	}
	r.group, err = groups.Make(fmt.Sprintf("job-%s-%s-%d", r.key.manager, r.key.job, r.key.attempt), limits)
	return err
}

// prepareFiles writes the files that the ranks start with: the job's own, the Python package, the
// checkpoint and the data.
func (r *run) prepareFiles(ctx context.Context) error {
	files := filepath.Join(r.dir, filesDir)
	if err := os.Mkdir(files, 0o700); err != nil {
		return err
	}
	if err := r.host.opts.Python(filepath.Join(r.dir, pythonDir)); err != nil {
		return err
	}
	folders := map[string]string{checkpointDir: r.start.Checkpoint, dataDir: r.start.Data}
	if r.start.Stream {
		delete(folders, dataDir)
		if err := r.openDataset(ctx); err != nil {
			return err
		}
	}
	for name, digest := range folders {
		if digest == "" {
			continue
		}
		m, err := data.Load(ctx, r.host.opts.Chunks, digest)
		if err == nil {
			err = m.Restore(ctx, r.host.opts.Chunks, filepath.Join(r.dir, name))
		}
		if err != nil {
			return unrestored(name, err)
		}
	}
	if r.start.Files == "" {
		return nil
	}
	archive, err := r.host.opts.Fetch(ctx, r.start.Files)
	if err != nil {
		return fmt.Errorf("fetch the job's files: %w", err)
	}
	return unpack(archive, files)
}

// unrestored returns the error of a checkpoint or a dataset that can't be restored. If parts are missing
// on all nodes, or are no checkpoint, it says what to do.
func unrestored(name string, err error) error {
	remedy := ""
	switch kind := outboard.KindOf(err); {
	case kind != outboard.NotFound && kind != outboard.Invalid:
	case name == dataDir:
		remedy = "; push the dataset again, and then `outboard jobs resume`"
	default:
		remedy = "; start the nodes that have it, and then `outboard jobs resume`, or submit the job again, which begins anew"
	}
	return fmt.Errorf("restore the job's %s: %w%s", name, err, remedy)
}

// chownFiles makes the ranks' user the owner of the folder.
func (r *run) chownFiles(socket string) error {
	if r.uid == 0 {
		return nil
	}
	uid := int(r.uid)
	err := filepath.WalkDir(r.dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, uid, uid)
	})
	return errors.Join(err, os.Lchown(socket, uid, uid))
}

// openStore finds a port for the store of rank 0, or relays connections to it.
func (r *run) openStore(life context.Context) (err error) {
	if r.start.First == 0 {
		r.port, err = launch.StorePort(life)
		return err
	}
	if r.relay, err = new(net.ListenConfig).Listen(life, "tcp", "127.0.0.1:0"); err != nil {
		return err
	}
	r.port = r.relay.Addr().(*net.TCPAddr).Port //nolint:errcheck // the listener is of TCP
	r.relayed.Go(func() {
		acceptor.Serve(life, r.relay, r.relay.Accept, acceptor.Options{Name: "ranks' store", Log: r.host.opts.Log, MaxConns: MaxRanks}, r.relayStore)
	})
	return nil
}

// relayStore relays a connection of a rank to the store at rank 0.
func (r *run) relayStore(ctx context.Context, conn net.Conn) {
	defer conn.Close()
	stream, err := r.host.opts.Peers.open(ctx, r.start.Nodes[0], methodStore, r.key.purpose(r.start.Node))
	if err != nil {
		r.host.opts.Log.Warn("the store of a job is out of reach", "job", r.key.job, "error", err)
		return
	}
	join(ctx, conn, stream)
}

// serveStore relays a stream of another node to the store of rank 0.
func (r *run) serveStore(ctx context.Context, stream *framed.Stream) error {
	if r.start.First != 0 {
		return outboard.Errorf(outboard.Invalid, "training job", "rank 0 is on another node")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	conn, err := dialStore(ctx, net.JoinHostPort("127.0.0.1", strconv.Itoa(r.port)))
	if err != nil {
		return err
	}
	join(ctx, conn, stream)
	return nil
}

// storePause is the time between two attempts to connect to a store, and storeLimit bounds all
// attempts together.
const (
	storePause = 50 * time.Millisecond
	storeLimit = 10 * time.Minute
)

// dialStore connects to the store of rank 0, which may still be starting.
func dialStore(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, storeLimit)
	defer cancel()
	for {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, outboard.Errorf(outboard.Unreachable, "training job", "rank 0 does not accept connections: %w", err)
		case <-time.After(storePause):
		}
	}
}

// join copies both ways until one side ends.
func join(ctx context.Context, conn net.Conn, stream *framed.Stream) {
	stop := context.AfterFunc(ctx, func() {
		_ = conn.Close() // Ends the copies.
		stream.Reset(ctx.Err())
	})
	defer stop()
	var copying sync.WaitGroup
	copying.Go(func() {
		_, _ = io.Copy(stream, conn) // The end of one direction ends the connection.
		_ = stream.Close()
	})
	_, _ = io.Copy(conn, stream)
	_ = conn.Close()
	copying.Wait()
}

// serve prepares the run, runs the ranks and then waits until the manager says that the ranks of all
// nodes have ended: data that this node has sent may still be in transit to them.
func (r *run) serve(ctx context.Context, stream *framed.Stream) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		cancel(r.receive(stream))
	}()
	go func() {
		if err := r.host.awaitLeaseLoss(ctx, r.leases); err != nil {
			cancel(err)
		}
	}()
	defer resetLate(ctx, stream)()
	defer r.close()
	err := r.open(ctx)
	switch {
	case err == nil:
		err = r.launch(ctx)
	case ctx.Err() == nil:
		return notLost(err)
	}
	if ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStopped) {
		return outboard.Errorf(outboard.Unreachable, "training job", "the node stops, or has lost the job's manager or a lease: %w", context.Cause(ctx))
	}
	if err := r.out.send(message{Exited: r.report(ctx, err)}); err != nil {
		return nil // the manager is lost, and the ranks have ended
	}
	select {
	case <-stopped:
		return nil
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, errStopped) {
			return err
		}
		return nil
	}
}

// notLost returns an error of a run that this node could not prepare, such as that of an object store
// which does not answer: the manager would read Unreachable as the loss of this node.
func notLost(err error) error {
	if outboard.KindOf(err) != outboard.Unreachable {
		return err
	}
	return outboard.Errorf(outboard.Other, "", "%w", err)
}

// receive receives the manager's messages until one stops the run, and returns the cause of the
// end.
func (r *run) receive(stream io.Reader) error {
	for {
		m, err := receive(stream)
		switch {
		case err != nil:
			return fmt.Errorf("the job's manager is lost: %w", err)
		case m.Stop != nil:
			return errStopped
		case m.Kept != nil:
			r.checkpoints.answer(m.Kept)
		case m.Moves != nil:
			r.elsewhere.finish(m.Moves)
		default:
			return outboard.Errorf(outboard.Protocol, "training job", "an unexpected message")
		}
	}
}

var errStopped = errors.New("the job was stopped")

// report describes how the ranks ended.
func (r *run) report(ctx context.Context, err error) *exited {
	e := &exited{Rank: -1, AfterLoss: r.lost.Load()}
	if r.server != nil {
		e.Sums = r.server.Sums()
		e.AfterLoss = e.AfterLoss || r.server.LeftElsewhere()
	}
	if f, ok := errors.AsType[*launch.Failure](err); ok {
		e.Rank, e.Status, e.Reason, e.Killed = f.Rank, f.Status, f.Error(), f.Killed
		if r.group.Killed() > 0 {
			e.Killed = false
			e.Reason += fmt.Sprintf(": the ranks of this node held more than their %v of memory; lease more devices or more of their memory (--memory), "+
				"or have the node's operator raise `outboard up --sandbox memory=SIZE`", r.memory)
		}
	} else if err != nil && ctx.Err() == nil {
		e.Rank, e.Status, e.Reason = r.start.First, 1, err.Error()
	}
	return e
}

func (r *run) launch(ctx context.Context) error {
	command, err := r.command()
	if err != nil {
		return err
	}
	var mu sync.Mutex
	var pids []int
	defer func() {
		for _, pid := range pids {
			r.host.setPID(pid, nil)
		}
		r.group.Kill()
	}()
	running, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	full := make(chan error, 1)
	go func() {
		err := launch.AwaitFullDisk(running, r.dir)
		full <- err
		stop(err)
	}()
	err = launch.Run(running, launch.Job{
		Path: command[0], Args: command, First: r.start.First, Ranks: r.start.Count,
		Dir: filepath.Join(r.dir, filesDir), UID: r.uid, GID: r.uid, Environ: r.processEnviron, OwnSession: true,
		Continues: r.server.Continues, Ended: r.server.Ended, LeftBefore: r.server.LeftBefore, Start: r.group.Start,
		Emit: func(l launch.Line) {
			text := l.Text[:min(len(l.Text), maxText)]
			// The error is ignored: the loss of the manager ends the run.
			_ = r.out.send(message{Line: &line{Rank: l.Rank, Stderr: l.Stderr, Text: strings.ToValidUTF8(string(text), "\uFFFD")}})
		},
		Started: func(_, pid int) {
			mu.Lock()
			pids = append(pids, pid)
			mu.Unlock()
			r.host.setPID(pid, r)
		},
	})
	if errors.Is(err, launch.ErrUnended) {
		r.host.opts.Log.Error("processes of ranks remain", "job", r.key.job, "error", err)
	}
	stop(nil)
	if cause := <-full; cause != nil && err != nil {
		return cause
	}
	return err
}

// command returns the command line of a rank.
func (r *run) command() ([]string, error) {
	program := r.start.Args
	if r.host.opts.Mode == ModeTrusted {
		path, err := launch.LookPath(program[0], filepath.Join(r.dir, filesDir))
		return append([]string{path}, program[1:]...), err
	}
	c := launch.Confinement{Dir: r.dir, Files: filepath.Join(r.dir, filesDir), Readable: r.host.opts.Readable, OwnUser: r.uid != 0}
	return append(append([]string(nil), r.host.opts.Command...), c.Args(program)...), nil
}

// processEnviron returns the environment with which the process of a rank is started.
func (r *run) processEnviron(rank int) []string {
	if r.host.opts.Mode == ModeTrusted {
		return r.environ(rank)
	}
	return launch.HelperEnviron(r.environ(rank))
}

// environ returns the environment of a rank: of the node's own environment only the PATH.
func (r *run) environ(rank int) []string {
	env := map[string]string{
		"PATH": os.Getenv("PATH"), "HOME": filepath.Join(r.dir, filesDir), "TMPDIR": filepath.Join(r.dir, filesDir), "LANG": "C.UTF-8",
		"PYTHONPATH": filepath.Join(r.dir, pythonDir), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1",
	}
	maps.Copy(env, r.start.resources().Environ(runtime.NumCPU(), r.start.Count))
	maps.Copy(env, r.start.Env)
	if own := r.start.Env["PYTHONPATH"]; own != "" {
		env["PYTHONPATH"] = own + ":" + filepath.Join(r.dir, pythonDir)
	}
	local := rank - r.start.First
	maps.Copy(env, map[string]string{
		"RANK": strconv.Itoa(rank), "LOCAL_RANK": strconv.Itoa(local),
		"WORLD_SIZE": strconv.Itoa(r.start.World), "LOCAL_WORLD_SIZE": strconv.Itoa(r.start.Count),
		"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": strconv.Itoa(r.port),
		socketVariable:  filepath.Join(r.dir, ranksSocket),
		"OUTBOARD_NODE": strconv.Itoa(r.start.Node), "OUTBOARD_NODES": strconv.Itoa(len(r.start.Nodes)),
		"OUTBOARD_JOB": r.key.job, "OUTBOARD_ATTEMPT": strconv.Itoa(cmp.Or(r.start.Repeats, r.key.attempt)),
		"OUTBOARD_DEVICE": string(r.leases[local/r.start.PerDevice].Device),
	})
	if r.start.Profile {
		env[ranks.ProfileVariable] = "1"
	}
	if r.start.Checkpoint != "" {
		env["OUTBOARD_CHECKPOINT"] = filepath.Join(r.dir, checkpointDir)
	}
	switch {
	case r.dataset != nil:
		env["OUTBOARD_DATASET"] = filepath.Join(r.dir, streamFile)
	case r.start.Data != "":
		env["OUTBOARD_DATA"] = filepath.Join(r.dir, dataDir)
	}
	var list []string
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	return list
}

func (r *run) close() {
	if r.stop != nil {
		r.stop()
	}
	if r.server != nil {
		_ = r.server.Close() // It never fails.
	}
	r.closeDataset()
	if r.mesh != nil {
		r.mesh.close()
	}
	if r.relay != nil {
		_ = r.relay.Close() // It may be closed already.
	}
	r.relayed.Wait()
	if err := r.group.Remove(); err != nil {
		r.host.opts.Log.Warn("the control group of ranks is not removed", "job", r.key.job, "error", err)
	}
	switch {
	case r.uid != 0:
		if err := removeLeftovers(r.uid); err != nil {
			r.host.opts.Log.Warn("not all is removed that ranks have left", "job", r.key.job, "error", err)
		}
	case r.group == nil && r.dir != "":
		// The user may have other processes, whose working folder is there: an operator's shell.
		endProcesses(func(pid int) bool { return startedByRanks(pid, r.dir, uint32(os.Geteuid())) })
	}
	if r.dir != "" {
		if err := launch.RemoveFolder(r.dir); err != nil {
			r.host.opts.Log.Warn("the folder of ranks is not removed", "dir", r.dir, "error", err)
		}
	}
	if r.opened {
		r.host.unregister(r.key)
	}
}
