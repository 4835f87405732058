package node

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/accel/bridge"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
)

// sessionServer serves sessions of programs on this node's devices: programs on this machine over a
// socket and shared memory, programs on other machines over streams of the fabric.
type sessionServer struct {
	self    outboard.NodeID
	pool    *pool.Pool
	host    *lend.Host
	devices []offeredDevice
	bridged bridge.Host // the sessions of programs on other machines
	log     *slog.Logger
}

// start starts a worker for a program that presents a claim on a lease of holder. via names the
// program's connection.
func (s *sessionServer) start(ctx context.Context, claim []byte, holder outboard.NodeID, via string) (*lend.Session, error) {
	lease, _, err := s.pool.Check(ctx, claim)
	if err != nil {
		return nil, err
	}
	if lease.Holder != holder {
		return nil, outboard.Errorf(outboard.Denied, "lease "+string(lease.Lease), "node %s presents a lease of node %s", holder, lease.Holder)
	}
	for _, d := range s.devices {
		if d.ID == lease.Device {
			return s.host.Start(lend.Spec{Lease: lease, Device: d.Device, Index: d.index, Via: via})
		}
	}
	return nil, outboard.Errorf(outboard.NotFound, "lease "+string(lease.Lease), "this node does not offer %s", lease.Device)
}

// requestLimit is how long a peer may take to send its request.
const requestLimit = 10 * time.Second

// serveLocal serves one session of a program on this machine. Its data does not pass
// through this process: program and worker share the ring.
func (s *sessionServer) serveLocal(ctx context.Context, socket *net.UnixConn) {
	conn := ipc.New(socket, borrow.LocalOptions)
	session, err := s.openLocal(ctx, conn)
	if err != nil {
		s.log.Warn("session refused", "via", "shm", "error", err)
		_ = conn.Send(borrow.TypeEnded, ipc.ReasonOf(err))
		return
	}
	defer session.Close()
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		if m, err := conn.Receive(context.Background()); err == nil {
			m.Close() // the holder has no more messages to send
		}
	}()
	select {
	case <-hungUp:
		session.End(nil)
	case <-session.Ending():
	case <-ctx.Done():
		session.End(errStopped)
	}
	// The program sees its ring fail now, and gets the reason here.
	_ = conn.Send(borrow.TypeEnded, ipc.ReasonOf(session.Err()))
	_ = conn.Close()
	<-hungUp
}

// errStopped is the error that programs get when the device's node is stopped.
var errStopped = outboard.Errorf(outboard.SessionLost, "session", "the device's node was stopped")

func (s *sessionServer) openLocal(ctx context.Context, conn *ipc.Conn) (*lend.Session, error) {
	var request borrow.LocalRequest
	if err := receiveFirst(ctx, conn, borrow.TypeOpen, &request); err != nil {
		return nil, err
	}
	if err := bridge.CheckVersion(request.Sessions); err != nil {
		return nil, err
	}
	session, err := s.start(ctx, request.Claim, s.self, "shm")
	if err != nil {
		return nil, err
	}
	if err := conn.Send(borrow.TypeOpened, borrow.LocalSession{Session: session.ID}, session.Ring().File()); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}

// receiveFirst receives the first message of a local process into v. The message must have the type
// kind.
func receiveFirst(ctx context.Context, conn *ipc.Conn, kind string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	m, err := conn.Receive(ctx)
	if err != nil {
		return outboard.Errorf(outboard.Protocol, "local protocol", "first message: %w", err)
	}
	defer m.Close()
	if m.Type != kind {
		return outboard.Errorf(outboard.Protocol, "local protocol", "the first message is %.40q and not %q", m.Type, kind)
	}
	return m.Decode(v)
}

// serveStream serves a stream of a program on another machine: the stream begins a session, or
// belongs to an existing one.
func (s *sessionServer) serveStream(ctx context.Context, stream *framed.Stream, peer authority.Peer) {
	if stream.Method() != bridge.Method {
		stream.Reset(outboard.Errorf(outboard.NotFound, "fabric", "this node has no method %q", stream.Method()))
		return
	}
	o, err := bridge.ParseOpening(stream.Header())
	switch {
	case err == nil && o.Kind != bridge.Open:
		err = s.bridged.Pass(ctx, o, string(peer.Node), stream)
	case err == nil:
		err = s.serveRemote(ctx, o, stream, peer)
	}
	if err == nil {
		return
	}
	if outboard.KindOf(err) != outboard.NotFound {
		s.log.Warn("session refused", "via", "tcp", "peer", peer.Node, "error", err)
	}
	stream.Reset(err)
}

// serveRemote serves a session of a program on another machine. An error means that the session is
// refused.
func (s *sessionServer) serveRemote(ctx context.Context, o bridge.Opening, stream *framed.Stream, peer authority.Peer) (err error) {
	hosted, err := s.bridged.Add(o, string(peer.Node), stream)
	if err != nil {
		return err
	}
	defer func() { hosted.Remove(err) }()
	session, err := s.start(ctx, o.Claim, peer.Node, "tcp")
	if err != nil {
		return err
	}
	defer session.Close()
	stop := context.AfterFunc(ctx, func() { session.End(errStopped) })
	defer stop()
	life, end := context.WithCancelCause(context.Background())
	defer end(nil)
	go func() {
		select {
		case <-session.Ending():
			end(session.Err())
		case <-life.Done():
		}
	}()
	explain := func(err error) error { return explain(session, err) }
	session.End(hosted.Run(life, bridge.NewHalf(session.Ring(), explain)))
	return nil
}

// reasonLimit is how long a worker that failed its ring may take to report the reason.
const reasonLimit = time.Second

// explain returns the reason of a session's end instead of its ring's error: the stream carries the
// text to the program's side.
func explain(session *lend.Session, err error) error {
	timer := time.NewTimer(reasonLimit)
	defer timer.Stop()
	select {
	case <-session.Ending():
	case <-timer.C:
	}
	return cmp.Or(session.Err(), err)
}
