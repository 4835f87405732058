package ranks

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/outboard-run/outboard"
)

// Messages between the servers of two nodes, little-endian: from and to (ranks of the group, 4
// bytes each), tag (8 bytes), length (8 bytes), and that many bytes. A message whose to is endMark says
// that the process of the rank has ended, after tag calls of the group, and one whose to is leaveMark
// that the process goes on without the group. They follow all messages of the rank.
const (
	letterHead = 24
	endMark    = 1<<32 - 1
	leaveMark  = 1<<32 - 2
	// maxLetter bounds a message, and maxHeld the memory of one node's messages that no rank has
	// received yet: further messages of the node wait.
	maxLetter = 1 << 30
	maxHeld   = 1 << 30
	// maxServerHeld bounds the memory of all mailboxes of a server: a job chooses how many groups
	// it has, and its messages lie in the memory of this node, not of its ranks.
	maxServerHeld = 4 << 30
)

// A mailbox exchanges messages of a group with one other node.
type mailbox struct {
	conn net.Conn
	out  chan *outgoing
	once sync.Once
	done chan struct{} // closed with the mailbox
	all  *atomic.Int64 // bytes that the server's mailboxes hold

	mu      sync.Mutex
	notFull sync.Cond
	held    int // bytes that arrived and that no rank has received
	letters int // the number of these messages
}

// An outgoing is a message to be written.
type outgoing struct {
	from, to uint32
	tag      uint64
	buf      []byte
	sent     func(error)
}

// newMailbox returns the mailbox of a connection, for a node with that many ranks of the group: each of
// them leaves once, so the queue always has room for their marks.
func newMailbox(conn net.Conn, all *atomic.Int64, ranks int) *mailbox {
	m := &mailbox{conn: conn, all: all, out: make(chan *outgoing, maxLetters+ranks), done: make(chan struct{})}
	m.notFull.L = &m.mu
	return m
}

func (m *mailbox) close() {
	m.once.Do(func() {
		close(m.done)
		_ = m.conn.Close() // This ends pending reads and writes.
		m.releaseAll()
	})
}

// post enqueues a message, or the mark of a rank. It returns false if the mailbox is closed or has
// maxLetters messages, which do not keep a mark away. The group's lock is held, so that no other
// message is enqueued meanwhile.
func (m *mailbox) post(o *outgoing) bool {
	select {
	case <-m.done:
		return false
	default:
	}
	if o.to < leaveMark && len(m.out) >= maxLetters {
		return false
	}
	select {
	case m.out <- o:
		return true
	default:
		return false
	}
}

// write writes messages until the mailbox is closed.
func (m *mailbox) write() {
	w := bufio.NewWriterSize(m.conn, 4096)
	for {
		select {
		case o := <-m.out:
			o.sent(m.writeOne(w, o))
		case <-m.done:
			for {
				select {
				case o := <-m.out:
					o.sent(net.ErrClosed)
				default:
					return
				}
			}
		}
	}
}

func (m *mailbox) writeOne(w *bufio.Writer, o *outgoing) error {
	var head [letterHead]byte
	binary.LittleEndian.PutUint32(head[0:], o.from)
	binary.LittleEndian.PutUint32(head[4:], o.to)
	binary.LittleEndian.PutUint64(head[8:], o.tag)
	binary.LittleEndian.PutUint64(head[16:], uint64(len(o.buf)))
	if _, err := w.Write(head[:]); err != nil {
		return err
	}
	if _, err := w.Write(o.buf); err != nil {
		return err
	}
	return w.Flush()
}

// An incoming is a received message.
type incoming struct {
	from, to uint32
	tag      uint64
	buf      []byte
}

// isMark reports whether the message says that a rank has left.
func (i *incoming) isMark() bool { return i.to >= leaveMark }

// read reads the next message. It waits while the mailbox holds too many bytes.
func (m *mailbox) read(in *bufio.Reader) (incoming, error) {
	var head [letterHead]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return incoming{}, err
	}
	i := incoming{
		from: binary.LittleEndian.Uint32(head[0:]), to: binary.LittleEndian.Uint32(head[4:]), tag: binary.LittleEndian.Uint64(head[8:]),
	}
	size := binary.LittleEndian.Uint64(head[16:])
	if size > maxLetter || i.isMark() && size != 0 {
		return i, mailErrorf("a message of %d bytes: want %d at most", size, maxLetter)
	}
	if i.isMark() {
		return i, nil // A full mailbox does not delay it.
	}
	if err := m.reserve(int(size)); err != nil {
		return i, err
	}
	i.buf = make([]byte, size)
	_, err := io.ReadFull(in, i.buf)
	return i, err
}

// reserve counts a message of n bytes, once the held messages leave room for it: at most maxLetters
// are held.
func (m *mailbox) reserve(n int) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.letters >= maxLetters || m.held > 0 && m.held+n > maxHeld {
		m.notFull.Wait()
	}
	select {
	case <-m.done:
		return net.ErrClosed
	default:
	}
	if m.all.Add(int64(n)) > maxServerHeld {
		m.all.Add(-int64(n))
		return mailErrorf("messages that no rank has received hold %v on this node, all that a job may have: receive them before more are sent", outboard.Bytes(maxServerHeld))
	}
	m.held += n
	m.letters++
	return nil
}

// release uncounts a message of n bytes that a rank has received.
func (m *mailbox) release(n int) {
	m.mu.Lock()
	n = min(n, m.held)
	m.held -= n
	m.letters = max(0, m.letters-1)
	m.mu.Unlock()
	m.all.Add(-int64(n))
	m.notFull.Broadcast()
}

// releaseAll uncounts all messages.
func (m *mailbox) releaseAll() {
	m.mu.Lock()
	n := m.held
	m.held, m.letters = 0, 0
	m.mu.Unlock()
	m.all.Add(-int64(n))
	m.notFull.Broadcast()
}

// A mailError is a breach of the protocol between servers.
type mailError struct{ text string }

func mailErrorf(format string, args ...any) error { return &mailError{fmt.Sprintf(format, args...)} }

func (e *mailError) Error() string { return e.text }

func bytesOf(words []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(words))), len(words)*8)
}
