package ipc

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// Options are the options of a Conn; the zero value works.
type Options struct {
	// MaxBody bounds a body in bytes; 0: 64 MiB.
	MaxBody int
	// MaxReceived bounds a received message, including a body passed as a file; 0: the bounds of a
	// packet and of MaxBody. A small bound makes the buffer of Receive small as well.
	MaxReceived int
	// WriteTimeout is how long a message may wait for a peer that does not read; 0: 10 s, negative:
	// until the connection ends.
	WriteTimeout time.Duration
	// MaxPending bounds the requests that wait for a reply; 0: 4,096.
	MaxPending int
}

func (o *Options) setDefaults() {
	if o.MaxBody == 0 {
		o.MaxBody = 64 << 20
	}
	if o.MaxReceived == 0 {
		o.MaxReceived = o.MaxBody
	}
	if o.WriteTimeout == 0 {
		o.WriteTimeout = 10 * time.Second
	}
	if o.MaxPending == 0 {
		o.MaxPending = 4096
	}
}

// ErrClosed is the error of a connection that the peer has closed, or whose peer has ended.
var ErrClosed = outboard.Errorf(outboard.Unreachable, "local protocol", "the process at the other end has ended")

// A Conn is one end of a connection. All methods but Receive and Serve may be called by any
// number of goroutines.
type Conn struct {
	socket *net.UnixConn
	opts   Options
	buffer []byte // of Receive

	write sync.Mutex // one packet at a time, with its deadline

	mu      sync.Mutex
	last    uint64 // the number of the last request
	pending map[uint64]chan *Message
	ended   bool
	done    chan struct{}
}

// New returns a Conn on a SOCK_SEQPACKET socket, which the Conn closes.
func New(socket *net.UnixConn, opts Options) *Conn {
	opts.setDefaults()
	return &Conn{socket: socket, opts: opts, pending: map[uint64]chan *Message{}, done: make(chan struct{})}
}

// FromFile returns a Conn on an inherited or passed SOCK_SEQPACKET socket. It closes file.
func FromFile(file *os.File, opts Options) (*Conn, error) {
	defer file.Close()
	return FromOpenFile(file, opts)
}

// FromOpenFile is FromFile for a file that stays open: a program that this process executes then
// receives the messages that this Conn has not received.
func FromOpenFile(file *os.File, opts Options) (*Conn, error) {
	const op = "local protocol"
	c, err := net.FileConn(file)
	if err != nil {
		return nil, outboard.Errorf(outboard.Protocol, op, "%w", err)
	}
	socket, ok := c.(*net.UnixConn)
	if !ok || socket.LocalAddr().Network() != "unixpacket" {
		return nil, errors.Join(outboard.Errorf(outboard.Protocol, op, "%s is no unix socket of packets", file.Name()), c.Close())
	}
	return New(socket, opts), nil
}

// Close closes the socket: Receive and Serve return, and pending requests fail.
func (c *Conn) Close() error {
	err := c.socket.Close()
	c.end()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// Done returns a channel that is closed when the connection has ended: it was closed, or Receive
// has seen its end.
func (c *Conn) Done() <-chan struct{} { return c.done }

// CloseWrite tells the peer that no more messages come; its Receive returns io.EOF.
func (c *Conn) CloseWrite() error { return c.socket.CloseWrite() }

func (c *Conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ended {
		c.ended = true
		close(c.done)
	}
}

// Serve calls handle with each message, in their order, until the connection ends, and then closes
// it. Replies go to their Calls instead. handle must not block: no reply is delivered meanwhile. It
// owns the message's files.
func (c *Conn) Serve(handle func(*Message)) {
	defer c.Close()
	for {
		m, err := c.Receive(context.Background())
		if err != nil {
			return
		}
		handle(m)
	}
}

// Receive waits for the next message that is not a reply, or until ctx is done. io.EOF means that
// the peer has closed the connection; any error but that of ctx ends the connection. One goroutine
// at a time may call Receive.
func (c *Conn) Receive(ctx context.Context) (*Message, error) {
	if ctx.Done() != nil {
		_ = c.socket.SetReadDeadline(time.Time{})
		passed := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			defer close(passed)
			_ = c.socket.SetReadDeadline(time.Unix(1, 0))
		})
		defer func() {
			if !stop() { // the deadline must not end the next Receive
				<-passed
				_ = c.socket.SetReadDeadline(time.Time{})
			}
		}()
	}
	for {
		m, err := c.receive()
		switch {
		case err != nil && ctx.Err() != nil && errors.Is(err, os.ErrDeadlineExceeded):
			return nil, context.Cause(ctx)
		case err != nil:
			c.end()
			return nil, err
		case m.Type == replyType:
			c.deliver(m)
		default:
			return m, nil
		}
	}
}

func (c *Conn) receive() (*Message, error) {
	if c.buffer == nil {
		c.buffer = make([]byte, min(MaxPacket, c.opts.MaxReceived))
	}
	rights := make([]byte, unix.CmsgSpace(4*MaxFiles))
	n, got, flags, _, err := c.socket.ReadMsgUnix(c.buffer, rights)
	if errors.Is(err, unix.ECONNRESET) {
		// The peer closed without having read all data: the kernel reports that once, before the
		// messages that the peer has sent.
		n, got, flags, _, err = c.socket.ReadMsgUnix(c.buffer, rights)
	}
	if errors.Is(err, io.EOF) {
		return nil, io.EOF // without the address in the error's text
	}
	if err != nil {
		return nil, err
	}
	files, err := parseFiles(rights[:got])
	m := &Message{files: files}
	short := flags&unix.MSG_CTRUNC != 0 && len(files) < MaxFiles
	switch {
	case err != nil:
	case n == 0:
		err = io.EOF
	case flags&unix.MSG_TRUNC != 0, flags&unix.MSG_CTRUNC != 0 && !short:
		err = outboard.Errorf(outboard.Protocol, "local protocol", "a packet of more than %d bytes or %d files", len(c.buffer), MaxFiles)
	case short:
		m.Close()
		m, err = decodeShort(c.buffer[:n])
	default:
		m, err = decode(c.buffer[:n], files, min(c.opts.MaxBody, c.opts.MaxReceived))
	}
	if err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

// parseFiles returns the files of a control message. It closes the files of a malformed one.
func parseFiles(rights []byte) ([]*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	all, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range all {
		fds, err := unix.ParseUnixRights(&all[i])
		if err != nil {
			continue // credentials and the like carry no files
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// Send sends a message without a reply. The caller still owns the files.
func (c *Conn) Send(kind string, body any, files ...*os.File) error {
	return c.send(Header{Type: kind}, body, files)
}

func (c *Conn) send(h Header, body any, files []*os.File) error {
	packet, spilled, err := encode(h, body, c.opts.MaxBody)
	if err != nil {
		return err
	}
	if spilled != nil {
		defer spilled.Close()
		files = append(slices.Clip(files), spilled)
	}
	rights, err := encodeFiles(files)
	if err != nil {
		return err
	}
	var deadline time.Time
	if c.opts.WriteTimeout > 0 {
		deadline = time.Now().Add(c.opts.WriteTimeout) // the wait for messages of other goroutines counts
	}
	c.write.Lock()
	defer c.write.Unlock()
	if err := c.writePacket(packet, rights, deadline); err != nil {
		return outboard.Errorf(outboard.Unreachable, "local protocol", "send %s: %w", h.Type, err)
	}
	return nil
}

// writePacket writes a packet. It waits until the deadline only while the socket is full: on a busy
// machine this goroutine may run only after the deadline, and a write with an expired deadline
// fails even if the peer has read all data.
func (c *Conn) writePacket(packet, rights []byte, deadline time.Time) error {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) {
		_, failed = unix.SendmsgN(int(fd), packet, rights, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	}); err != nil {
		return err
	}
	if !errors.Is(failed, unix.EAGAIN) && !errors.Is(failed, unix.EINTR) {
		return os.NewSyscallError("sendmsg", failed)
	}
	_ = c.socket.SetWriteDeadline(deadline)
	_, _, err = c.socket.WriteMsgUnix(packet, rights, nil)
	return err
}

// encodeFiles encodes the descriptors of files as a control message. It does not use File.Fd, which
// would make the file block for all its users.
func encodeFiles(files []*os.File) ([]byte, error) {
	if len(files) > MaxFiles {
		return nil, outboard.Errorf(outboard.Exhausted, "local protocol", "%d files, and %d are allowed", len(files), MaxFiles)
	}
	var fds []int
	for _, f := range files {
		raw, err := f.SyscallConn()
		if err != nil {
			return nil, err
		}
		if err := raw.Control(func(fd uintptr) { fds = append(fds, int(fd)) }); err != nil {
			return nil, err
		}
	}
	if len(fds) == 0 {
		return nil, nil
	}
	return unix.UnixRights(fds...), nil
}

// Call sends a request and waits for its reply, whose files belong to the caller. It fails with the
// error of the reply, with ErrClosed, or with the cause of ctx. Another goroutine has to be in
// Serve or Receive.
func (c *Conn) Call(ctx context.Context, kind string, body any, files ...*os.File) (*Message, error) {
	h := Header{Type: kind}
	if deadline, ok := ctx.Deadline(); ok {
		h.TimeoutMS = max(time.Until(deadline).Milliseconds(), 1)
	}
	id, reply, err := c.register()
	if err != nil {
		return nil, err
	}
	h.ID = id
	if err := c.send(h, body, files); err != nil {
		c.forget(id)
		return nil, err
	}
	select {
	case m := <-reply:
		return m.result()
	case <-c.done:
		c.forget(id)
		select {
		case m := <-reply: // it was the last message
			return m.result()
		default:
			return nil, ErrClosed
		}
	case <-ctx.Done():
		c.forget(id)
		return nil, context.Cause(ctx)
	}
}

func (m *Message) result() (*Message, error) {
	if err := m.failure(); err != nil {
		m.Close()
		return nil, err
	}
	return m, nil
}

func (c *Conn) register() (uint64, chan *Message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.ended:
		return 0, nil, ErrClosed
	case len(c.pending) >= c.opts.MaxPending:
		return 0, nil, outboard.Errorf(outboard.Exhausted, "local protocol", "%d requests wait for a reply already", len(c.pending))
	}
	c.last++
	reply := make(chan *Message, 1)
	c.pending[c.last] = reply
	return c.last, reply, nil
}

func (c *Conn) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

// deliver passes a reply to its Call. It drops a reply for which no Call waits.
func (c *Conn) deliver(m *Message) {
	c.mu.Lock()
	reply := c.pending[m.ID]
	delete(c.pending, m.ID)
	c.mu.Unlock()
	if reply == nil {
		m.Close()
		return
	}
	reply <- m
}

// Reply replies to a request, with an error if err is not nil. The caller still owns the files. It
// does nothing for a message that expects no reply. It fails if the peer is gone, or if the body
// can't be sent: then the peer gets that error.
func (c *Conn) Reply(to *Message, body any, err error, files ...*os.File) error {
	if to.ID == 0 {
		return nil
	}
	h := Header{Type: replyType, ID: to.ID}
	if err != nil {
		h.Error, h.Kind = shortened(err.Error()), outboard.KindOf(err)
		body, files = nil, nil
	}
	sent := c.send(h, body, files)
	if sent != nil && outboard.KindOf(sent) != outboard.Unreachable {
		h.Error, h.Kind = shortened(sent.Error()), outboard.KindOf(sent)
		return errors.Join(sent, c.send(h, nil, nil))
	}
	return sent
}

// maxError bounds the text of an error: JSON encodes a byte as at most six.
const maxError = 16 << 10

func shortened(text string) string {
	if text == "" {
		text = "unknown error"
	}
	return text[:min(len(text), maxError)]
}

// Peer is the process at the other end, as the kernel reports it.
type Peer struct {
	PID      int
	UID, GID uint32
}

// Peer returns the credentials of the other end: of the process that connected or listened or, for
// a socket pair, that created it.
func (c *Conn) Peer() (Peer, error) {
	raw, err := c.socket.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return Peer{}, err
	}
	if failed != nil {
		return Peer{}, outboard.Errorf(outboard.Denied, "local protocol", "peer credentials: %w", failed)
	}
	return Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid}, nil
}
