package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/pool"
	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// sessionServer serves sessions of programs on the devices of this node: of this machine over
// a socket and shared memory, of other machines over streams of the fabric.
type sessionServer struct {
	self    outboard.NodeID
	pool    *pool.Pool
	host    *lend.Host
	devices []offeredDevice
	log     *slog.Logger
}

// start starts a worker for a program that presents a claim on a lease of its holder's.
// via is how the program is connected.
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

// requestLimit is how long a peer may take for its request.
const requestLimit = 10 * time.Second

// serveLocal serves one session of a program on this machine. Its data does not pass
// through this process: program and worker share the ring.
func (s *sessionServer) serveLocal(ctx context.Context, conn *net.UnixConn) {
	session, err := s.openLocal(ctx, conn)
	if err != nil {
		s.log.Warn("session refused", "via", "shm", "error", err)
		_ = sendEvent(conn, borrow.EventOf(err), nil)
		return
	}
	defer session.Close()
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		_, _ = conn.Read(make([]byte, 1)) // the holder sends nothing more
	}()
	select {
	case <-hungUp:
		session.End(nil)
	case <-session.Ending():
	case <-ctx.Done():
		session.End(errStopped)
	}
	// The program sees its ring fail now, and gets the reason here.
	_ = sendEvent(conn, borrow.EventOf(session.Err()), nil)
	_ = conn.Close()
	<-hungUp
}

// errStopped is what programs get when the device's node is stopped.
var errStopped = outboard.Errorf(outboard.SessionLost, "session", "the device's node was stopped")

func (s *sessionServer) openLocal(ctx context.Context, conn *net.UnixConn) (*lend.Session, error) {
	_ = conn.SetReadDeadline(time.Now().Add(requestLimit))
	line, err := bufio.NewReaderSize(conn, borrow.MaxLine).ReadSlice('\n')
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "session", "first line: %w", err)
	}
	_ = conn.SetReadDeadline(time.Time{})
	request, err := parseRequest(line)
	if err != nil {
		return nil, err
	}
	if err := borrow.CheckVersion(request.Sessions); err != nil {
		return nil, err
	}
	session, err := s.start(ctx, request.Claim, s.self, "shm")
	if err != nil {
		return nil, err
	}
	if err := sendEvent(conn, borrow.LocalEvent{Session: session.ID}, session.Ring().File()); err != nil {
		return nil, errors.Join(err, session.Close())
	}
	return session, nil
}

func parseRequest(line []byte) (borrow.LocalRequest, error) {
	var request borrow.LocalRequest
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&request); err != nil {
		return request, outboard.Errorf(outboard.Protocol, "session", "first line: %w", err)
	}
	return request, nil
}

func sendEvent(conn *net.UnixConn, event borrow.LocalEvent, file *os.File) error {
	text, err := json.Marshal(event)
	if err != nil {
		return err
	}
	_ = conn.SetWriteDeadline(time.Now().Add(requestLimit))
	return unixsock.Send(conn, append(text, '\n'), file)
}

// serveStream serves one session of a program on another machine.
func (s *sessionServer) serveStream(ctx context.Context, stream *framed.Stream, peer authority.Peer) {
	if stream.Method() != borrow.Method {
		stream.Reset(outboard.Errorf(outboard.NotFound, "fabric", "this node has no method %q", stream.Method()))
		return
	}
	claim, err := borrow.ClaimOf(stream.Header())
	var session *lend.Session
	if err == nil {
		session, err = s.start(ctx, claim, peer.Node, "tcp")
	}
	if err != nil {
		s.log.Warn("session refused", "via", "tcp", "peer", peer.Node, "error", err)
		stream.Reset(err)
		return
	}
	defer session.Close()
	stop := context.AfterFunc(ctx, func() { session.End(errStopped) })
	defer stop()
	session.End(framed.Relay(stream, explainedRing{session.Ring(), session}))
}

// An explainedRing is a session's ring whose errors have the reason of the session's end, and
// not only its kind: the stream carries the text to the program's side.
type explainedRing struct {
	*shm.Ring
	session *lend.Session
}

// Next implements framed.Ring.
func (r explainedRing) Next(least int) ([]byte, error) {
	b, err := r.Ring.Next(least)
	return b, r.explain(err)
}

// Reserve implements framed.Ring.
func (r explainedRing) Reserve(least int) ([]byte, error) {
	b, err := r.Ring.Reserve(least)
	return b, r.explain(err)
}

// reasonLimit is how long a worker that failed its ring may take to report the reason.
const reasonLimit = time.Second

func (r explainedRing) explain(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	timer := time.NewTimer(reasonLimit)
	defer timer.Stop()
	select {
	case <-r.session.Ending():
	case <-timer.C:
	}
	if reason := r.session.Err(); reason != nil {
		return reason
	}
	return err
}
