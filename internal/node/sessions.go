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
	var g leaseGuard
	for {
		changed := n.pool.Changed()
		for _, s := range g.overdue(n.host.Sessions(), n.pool.Leases(), time.Now()) {
			s.End(outboard.Errorf(outboard.LeaseLost, "session", "the lease of %s by %s was given back or expired", s.Device.ID, s.Lease.Holder))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

// A leaseGuard remembers of sessions what tells a lease that was given back from one that was
// lost.
type leaseGuard struct {
	expire map[outboard.LeaseID]time.Time   // when a lease would have expired
	given  map[outboard.SessionID]time.Time // since when a session's lease is given back
}

// leaselessLimit is how long a session may outlive a lease that was given back. Its holder has
// ended the session before that, but the two come by different ways.
const leaselessLimit = 2 * time.Second

// overdue are the sessions that have to end.
func (g *leaseGuard) overdue(sessions []*lend.Session, leases []outboard.Lease, now time.Time) (ends []*lend.Session) {
	standing := make(map[outboard.LeaseID]time.Time, len(leases))
	for _, l := range leases {
		standing[l.Lease] = l.Expires
	}
	expire, given := map[outboard.LeaseID]time.Time{}, map[outboard.SessionID]time.Time{}
	for _, s := range sessions {
		id := s.Lease.Lease
		if end, ok := standing[id]; ok {
			expire[id] = end
			continue
		}
		expire[id] = g.expire[id]
		since, ok := g.given[s.ID]
		if !ok && now.Before(expire[id]) {
			since, ok = now, true
		}
		if given[s.ID] = since; !ok || now.Sub(since) >= leaselessLimit {
			ends = append(ends, s)
		}
	}
	g.expire, g.given = expire, given
	return ends
}
