package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// startSession starts a worker for the node or session of a node that shows a
// claim of its own.
func (n *Node) startSession(ctx context.Context, claim []byte, holder outboard.NodeID, via string) (*lend.Session, error) {
	lease, _, err := n.pool.Check(ctx, claim)
	if err != nil {
		return nil, err
	}
	if lease.Holder != holder {
		return nil, outboard.Errorf(outboard.Denied, "lease "+string(lease.Lease), "node %s shows a lease of node %s", holder, lease.Holder)
	}
	for _, d := range n.offers {
		if d.ID == lease.Device {
			return n.host.Start(lend.Spec{Lease: lease, Device: d.Device, Index: d.index, Via: via})
		}
	}
	return nil, outboard.Errorf(outboard.NotFound, "lease "+string(lease.Lease), "this node does not offer %s", lease.Device)
}

// serveSessions serves sessions of programs on this machine.
func (n *Node) serveSessions(ctx context.Context, ready func()) error {
	return n.serveSocket(ctx, SessionSocket, ready, n.serveSession)
}

// serveSocket serves each connection on a socket in the data folder, but for those of
// workers, until ctx is done. It closes the connections.
func (n *Node) serveSocket(ctx context.Context, name string, ready func(), serve func(context.Context, *net.UnixConn)) error {
	path := n.folder.at(name)
	listener, err := unixsock.Listen(path)
	if err != nil {
		return err
	}
	defer os.Remove(path)
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	door := guarded{listener, n.host.Owns, n.log}
	ready()
	var serving sync.WaitGroup
	defer serving.Wait()
	for {
		conn, err := door.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			n.log.Warn("accept a connection", "socket", name, "error", err)
			pause(ctx)
			continue
		}
		serving.Go(func() {
			defer conn.Close()
			serve(ctx, conn)
		})
	}
}

// pause keeps an accept loop from spinning while descriptors are short.
func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(50 * time.Millisecond):
	}
}

// requestLimit is how long a peer may take to say what it wants.
const requestLimit = 10 * time.Second

// serveSession is the life of one session of a program on this machine. Its
// data never comes by here: program and worker share the ring.
func (n *Node) serveSession(ctx context.Context, conn *net.UnixConn) {
	session, err := n.openSession(ctx, conn)
	if err != nil {
		n.log.Warn("session refused", "via", "shm", "error", err)
		_ = sendEvent(conn, borrow.EventOf(err), nil)
		return
	}
	defer session.Close()
	hungUp := make(chan struct{})
	go func() {
		defer close(hungUp)
		_, _ = conn.Read(make([]byte, 1)) // the holder says nothing more
	}()
	select {
	case <-hungUp:
		session.End(nil)
	case <-session.Ending():
	case <-ctx.Done():
		session.End(errStopped)
	}
	// The program sees its ring fail now, and wants to know why.
	_ = sendEvent(conn, borrow.EventOf(session.Err()), nil)
	_ = conn.Close()
	<-hungUp
}

// errStopped is what programs get when the device's node is told to stop.
var errStopped = outboard.Errorf(outboard.SessionLost, "session", "the device's node was stopped")

func (n *Node) openSession(ctx context.Context, conn *net.UnixConn) (*lend.Session, error) {
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
	session, err := n.startSession(ctx, request.Claim, n.self.ID, "shm")
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

// guard ends the sessions whose lease no longer stands.
func (n *Node) guard(ctx context.Context, ready func()) error {
	ready()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		changed := n.pool.Changed()
		n.endLeaseless()
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

func (n *Node) endLeaseless() {
	sessions := n.host.Sessions()
	if len(sessions) == 0 {
		return
	}
	standing := map[outboard.LeaseID]bool{}
	for _, l := range n.pool.Leases() {
		standing[l.Lease] = true
	}
	for _, s := range sessions {
		if !standing[s.Lease.Lease] {
			s.End(outboard.Errorf(outboard.LeaseLost, "session", "the lease of %s by %s was given back or expired", s.Device.ID, s.Lease.Holder))
		}
	}
}
