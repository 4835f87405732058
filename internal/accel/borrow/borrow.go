// Package borrow is the holder's side of sessions: it provides every process below `outboard run`
// that loads the driver library with a ring to a worker on the leased device's node.
//
// A [Server] listens on a unix socket. Each connection of a process is one session of one of the
// leases; the session ends with the connection. A [Link] carries the data of a session: [Local] on
// this machine, [Remote] over the fabric.
package borrow

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// Link is an open session.
type Link interface {
	// File returns the ring's memory for the program. The link owns it.
	File() *os.File
	// Done returns a channel that is closed when either side has ended the session. The ring then
	// has the reason.
	Done() <-chan struct{}
	// Err returns why the session ended; nil while it is live and after a clean end.
	Err() error
	// Close ends the session and frees its resources.
	Close() error
}

// Lease is one of the program's devices.
type Lease struct {
	// Name is the device's name in the error of a lost session; it may be empty.
	Name string
	// Memory bounds the allocations of a session.
	Memory outboard.Bytes
	// Dial opens a session.
	Dial func(ctx context.Context) (Link, error)
}

// Options configure a Server.
type Options struct {
	// Socket is the path to listen at. Only the owner may have access to its folder.
	Socket string
	Leases []Lease
	// DeadAfter is reported to processes: how long a silent session counts as live.
	DeadAfter time.Duration
	// Early opens a session of each lease at once, for the first process that requests one.
	Early bool
	Log   *slog.Logger
}

func (o *Options) setDefaults() {
	if o.DeadAfter == 0 {
		o.DeadAfter = 5 * time.Second
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
}

// Server serves the processes of one program.
type Server struct {
	opts    Options
	early   []*early // by lease; nil: none
	stop    context.CancelFunc
	running sync.WaitGroup
	close   sync.Once

	lossOnce sync.Once
	lost     chan struct{}
	loss     error // set before lost is closed
}

// Open begins to listen. The server runs until Close; ctx is only for opening.
func Open(ctx context.Context, opts Options) (*Server, error) {
	opts.setDefaults()
	listener, err := unixsock.Listen(opts.Socket)
	if err != nil {
		return nil, err
	}
	life, stop := context.WithCancel(context.WithoutCancel(ctx))
	s := &Server{opts: opts, early: make([]*early, len(opts.Leases)), stop: stop, lost: make(chan struct{})}
	if opts.Early {
		s.openEarly(life)
	}
	s.running.Go(func() {
		acceptor.Serve(life, listener, listener.AcceptUnix, acceptor.Options{Name: "sessions of the program", Log: opts.Log}, s.serve)
	})
	return s, nil
}

// openEarly begins to open a session of each lease.
func (s *Server) openEarly(ctx context.Context) {
	for i, lease := range s.opts.Leases {
		e, run := openEarly(ctx, lease, earlyLimit)
		s.early[i] = e
		s.running.Go(run)
	}
}

// Lost returns a channel that is closed when the session of a running process has ended, or could
// not begin.
func (s *Server) Lost() <-chan struct{} { return s.lost }

// Loss returns the reason of the first lost session, once Lost is closed.
func (s *Server) Loss() error { return s.loss }

// EndSessions ends all sessions, and begins no more, since the program's leases have ended.
func (s *Server) EndSessions(reason error) {
	s.recordLoss(Lease{}, reason)
	s.stop()
}

// Close ends all sessions.
func (s *Server) Close() error {
	s.close.Do(func() {
		s.stop()
		s.running.Wait()
		_ = os.Remove(s.opts.Socket)
	})
	return nil
}

// helloLimit is how long a process may take to send its first 32 bytes.
const helloLimit = 10 * time.Second

// serve serves one connection until its end.
func (s *Server) serve(ctx context.Context, conn *net.UnixConn) {
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	first := make([]byte, helloSize)
	_ = conn.SetReadDeadline(time.Now().Add(helloLimit))
	if _, err := io.ReadFull(conn, first); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	link, lease, err := s.open(ctx, first, conn)
	if err != nil {
		s.opts.Log.Warn("session refused", "error", err)
		return
	}
	defer link.Close()
	s.watch(ctx, conn, link, lease)
}

// open answers a hello. It returns the session's link unless the hello is refused.
func (s *Server) open(ctx context.Context, first []byte, conn *net.UnixConn) (Link, Lease, error) {
	h, err := parseHello(first)
	if err == nil && int64(h.Lease) >= int64(len(s.opts.Leases)) {
		err = outboard.Errorf(outboard.Invalid, "hello", "lease %d of %d", h.Lease, len(s.opts.Leases))
	}
	answer := welcome{Leases: len(s.opts.Leases), DeadAfter: s.opts.DeadAfter, Err: err}
	if err != nil {
		return nil, Lease{}, errors.Join(err, unixsock.Send(conn, answer.marshal(), nil))
	}
	lease := s.opts.Leases[h.Lease]
	link := s.early[h.Lease].receive(ctx)
	if link == nil {
		link, err = lease.Dial(ctx)
	}
	if err != nil {
		s.recordLoss(lease, err)
		answer.Err = err
		return nil, lease, errors.Join(err, unixsock.Send(conn, answer.marshal(), nil))
	}
	answer.Memory = lease.Memory
	if err := unixsock.Send(conn, answer.marshal(), link.File()); err != nil {
		return nil, lease, errors.Join(err, link.Close())
	}
	return link, lease, nil
}

// watch waits until the process, the server or the session ends.
func (s *Server) watch(ctx context.Context, conn *net.UnixConn, link Link, lease Lease) {
	hungUp := make(chan struct{})
	s.running.Go(func() {
		defer close(hungUp)
		// A process sends nothing more: Read returns at end of file.
		_, _ = conn.Read(make([]byte, 1))
	})
	select {
	case <-hungUp:
	case <-ctx.Done():
	case <-link.Done():
	}
	// A process that sees its ring fail may end before the reason has arrived.
	if failed(link.File()) {
		awaitReason(link)
	}
	if err := link.Err(); err != nil {
		s.recordLoss(lease, err)
	}
}

// reasonLimit is how long the reason of a failed session may take to arrive.
const reasonLimit = time.Second

func awaitReason(link Link) {
	timer := time.NewTimer(reasonLimit)
	defer timer.Stop()
	select {
	case <-link.Done():
	case <-timer.C:
	}
}

// recordLoss stores the reason of the first lost session, and closes lost.
func (s *Server) recordLoss(lease Lease, err error) {
	s.lossOnce.Do(func() {
		// The error of a cut connection contains an address, but no device.
		if !strings.Contains(err.Error(), lease.Name) {
			err = fmt.Errorf("%s: %w", lease.Name, err)
		}
		s.loss = err
		close(s.lost)
	})
}
