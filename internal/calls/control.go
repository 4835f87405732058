package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
)

// A node and a process that carries its calls talk over a socket of packets: each is
// a message in JSON, and may have open files with it.

// The requests of a node, and what they are answered with.
const (
	msgStart = "start" // begin to follow the pool: Ready
	msgServe = "serve" // take connections on the files: nothing
	msgPause = "pause" // take none: a file with what the policies hold
	msgTake  = "take"  // make the policies hold what is in the file: nothing
	msgHeld  = "held"  // calls that other processes have under way, in a file; no answer
	msgDrain = "drain" // send the callers elsewhere, and end after the last call: Flying
	msgMoved = "moved" // another process has the program of the endpoint ID; no answer
	msgPeer  = "peer"  // a node's connection, of which Data was read; no answer
	msgNear  = "near"  // another process's link; no answer
	msgHTTP  = "http"  // a connection for the tables; no answer
	msgWhere = "where" // which endpoint has the stream ID: its ID, or "". A process asks it too, of others
)

// The requests of a process.
const (
	msgState    = "state"    // a connection to the pool's table; no answer
	msgOffer    = "offer"    // a program serves: Endpoint with its ID
	msgSettled  = "settled"  // the program of the endpoint ID is reached here; no answer
	msgWithdraw = "withdraw" // the endpoint ID is gone: nothing
	msgLink     = "link"     // to the process of that number: a file
	msgLeft     = "left"     // the last call is over, and a file has what was counted: nothing
	msgAnswer   = "answer"   // of either side
)

// maxPacket is more than a TLS hello, which may have 64 KiB, needs in JSON.
const maxPacket = 160 << 10

// A message is one packet.
type message struct {
	Type string `json:"type"`
	// Seq names a request that wants an answer, and its answer; 0: it wants none.
	Seq      uint64             `json:"seq,omitempty"`
	Error    string             `json:"error,omitempty"`
	Kind     outboard.Kind      `json:"kind,omitempty"`
	Config   *Config            `json:"config,omitempty"`
	Ready    *Ready             `json:"ready,omitempty"`
	Flying   *Flying            `json:"flying,omitempty"`
	Endpoint *services.Endpoint `json:"endpoint,omitempty"`
	Previous string             `json:"previous,omitempty"`
	ID       string             `json:"id,omitempty"`
	Process  int                `json:"process,omitempty"`
	Data     []byte             `json:"data,omitempty"`

	files []*os.File
}

func (m *message) close() {
	for _, f := range m.files {
		_ = f.Close()
	}
	m.files = nil
}

// file is the message's only file, which is the caller's from now on.
func (m *message) file() *os.File {
	if len(m.files) == 0 {
		return nil
	}
	f := m.files[0]
	m.files = m.files[1:]
	m.close()
	return f
}

// A control is one end of such a socket.
type control struct {
	conn *net.UnixConn
	// handle treats a request of the other side. It is called by the goroutine that
	// reads, in the requests' order, and must not wait.
	handle func(*message)

	write   sync.Mutex
	mu      sync.Mutex
	seq     uint64
	waiting map[uint64]chan *message
	done    chan struct{}
}

// newControl takes file over. Nothing is read before run.
func newControl(file *os.File) (*control, error) {
	defer file.Close()
	c, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("control socket: %w", err)
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(errors.New("control socket: no unix socket"), c.Close())
	}
	return &control{conn: conn, waiting: map[uint64]chan *message{}, done: make(chan struct{})}, nil
}

// run reads until the other side is gone.
func (c *control) run() {
	defer close(c.done)
	defer c.conn.Close()
	b := make([]byte, maxPacket)
	for {
		m, err := c.receive(b)
		if err != nil {
			return
		}
		if m.Type == msgAnswer {
			c.answered(m)
			continue
		}
		c.handle(m)
	}
}

func (c *control) receive(b []byte) (*message, error) {
	rights := make([]byte, unix.CmsgSpace(4*4))
	n, got, flags, _, err := c.conn.ReadMsgUnix(b, rights)
	if err != nil {
		return nil, err
	}
	m := &message{}
	if m.files, err = filesOf(rights[:got]); err != nil {
		return nil, err
	}
	switch {
	case n == 0:
		err = io.EOF
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = errors.New("control socket: a packet that is too long")
	default:
		files := m.files
		err = json.Unmarshal(b[:n], m)
		m.files = files
	}
	if err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func filesOf(rights []byte) ([]*os.File, error) {
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
			continue
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "passed"))
		}
	}
	return files, nil
}

// tell sends a message. Its files stay the caller's.
func (c *control) tell(m *message) error {
	text, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if len(text) > maxPacket {
		return outboard.Errorf(outboard.Exhausted, "control socket", "a packet of %d bytes", len(text))
	}
	rights, err := rightsOf(m.files)
	if err != nil {
		return err
	}
	c.write.Lock()
	defer c.write.Unlock()
	_, _, err = c.conn.WriteMsgUnix(text, rights, nil)
	if err != nil {
		return outboard.Errorf(outboard.Unreachable, "control socket", "%w", err)
	}
	return nil
}

// rightsOf does not use File.Fd, which would make the file block for all who have it.
func rightsOf(files []*os.File) ([]byte, error) {
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

// errGone says that the process at the other end has ended.
var errGone = outboard.Errorf(outboard.Unreachable, "control socket", "the process at the other end has ended")

// ask sends a request and waits for its answer.
func (c *control) ask(ctx context.Context, m *message) (*message, error) {
	answer := make(chan *message, 1)
	c.mu.Lock()
	c.seq++
	m.Seq = c.seq
	c.waiting[m.Seq] = answer
	c.mu.Unlock()
	if err := c.tell(m); err != nil {
		c.forget(m.Seq)
		return nil, err
	}
	select {
	case a := <-answer:
		return a.result()
	case <-c.done:
		c.forget(m.Seq)
		return nil, errGone
	case <-ctx.Done():
		c.forget(m.Seq)
		return nil, context.Cause(ctx)
	}
}

// over says that the other side is gone, or nobody listens to it any more.
func (c *control) over() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func (m *message) result() (*message, error) {
	if m.Error == "" {
		return m, nil
	}
	m.close()
	return nil, &outboard.Error{Kind: m.Kind, Err: errors.New(m.Error)}
}

func (c *control) forget(seq uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, seq)
}

func (c *control) answered(m *message) {
	c.mu.Lock()
	answer := c.waiting[m.Seq]
	delete(c.waiting, m.Seq)
	c.mu.Unlock()
	if answer == nil {
		m.close()
		return
	}
	answer <- m
}

// answer is what a request comes to. It takes the files of m over.
func (c *control) answer(to *message, m *message, err error) {
	if m == nil {
		m = &message{}
	}
	defer m.close()
	m.Type, m.Seq = msgAnswer, to.Seq
	if err != nil {
		m.Error, m.Kind = err.Error(), outboard.KindOf(err)
	}
	// Its error is that the other side is gone, which run notices.
	_ = c.tell(m)
}

// pairOfPackets is a control socket's two ends.
func pairOfPackets() (a, b *os.File, err error) { return socketPair(unix.SOCK_SEQPACKET) }

// pairOfStreams is a connection's two ends.
func pairOfStreams() (a, b *os.File, err error) { return socketPair(unix.SOCK_STREAM) }

func socketPair(kind int) (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, kind|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("socket pair: %w", err)
	}
	return os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair"), nil
}

var errNoFile = outboard.Errorf(outboard.Protocol, "control socket", "no file came along")

// connOf makes a connection of a file, which it closes.
func connOf(f *os.File) (net.Conn, error) {
	if f == nil {
		return nil, errNoFile
	}
	defer f.Close()
	return net.FileConn(f)
}

// send tells the other side of a connection and returns its near end.
func (c *control) connect(kind string) (net.Conn, error) {
	near, far, err := pairOfStreams()
	if err != nil {
		return nil, err
	}
	defer far.Close()
	if err := c.tell(&message{Type: kind, files: []*os.File{far}}); err != nil {
		return nil, errors.Join(err, near.Close())
	}
	return connOf(near)
}
