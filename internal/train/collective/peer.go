package collective

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Messages between ranks: 16 bytes, the kind (1 byte, 3 of zeros), the payload's length (4
// bytes) and the number of the call (8 bytes), little-endian; and the payload.
const (
	kindCall  = 1 // payload: the call, to the next rank
	kindData  = 2 // payload: elements; one message for each step that sends, or several
	kindAbort = 3 // payload: the reason, as text
	kindPart  = 4 // payload: the number of a part (4 bytes) and its elements, of a step that may lose parts
	kindEnd   = 5 // no payload: the sender sends no more parts of this step
)

const (
	headSize = 16
	maxData  = 1 << 30 // bytes of one message of elements
	maxText  = 4096    // bytes of an abort
)

// outSize is the size of the buffer of messages to a rank: an announcement and 4 KiB of elements
// leave in one write.
const outSize = 6 << 10

type head struct {
	kind   byte
	length uint32
	number uint64
}

func (h head) append(b []byte) []byte {
	b = append(b, h.kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.length)
	return binary.LittleEndian.AppendUint64(b, h.number)
}

// parseHead reads a head and checks its length.
func parseHead(b *[headSize]byte) (head, error) {
	h := head{kind: b[0], length: binary.LittleEndian.Uint32(b[4:]), number: binary.LittleEndian.Uint64(b[8:])}
	most := uint32(0)
	switch h.kind {
	case kindCall:
		most = callSize + partSpan + maxSite
	case kindData:
		most = maxData
	case kindAbort:
		most = maxText
	case kindPart:
		most = partHead + partSize
	}
	if h.length > most || h.kind < kindCall || h.kind > kindEnd {
		return h, fmt.Errorf("a message of kind %d with %d bytes", h.kind, h.length)
	}
	return h, nil
}

// A peer is the connection to another rank.
type peer struct {
	g    *Group
	rank int
	conn net.Conn
	in   *bufio.Reader

	writing   sync.Mutex
	out       *bufio.Writer
	announced uint64 // the last call announced to the peer

	// data passes the connection's reading side to the call that waits for elements, and taken
	// returns it.
	data  chan head
	taken chan struct{}
}

func newPeer(g *Group, rank int, conn net.Conn) *peer {
	return &peer{
		g: g, rank: rank, conn: conn, in: bufio.NewReaderSize(conn, 64<<10), out: bufio.NewWriterSize(conn, outSize),
		data: make(chan head), taken: make(chan struct{}, 1),
	}
}

// read reads messages until the connection or the group ends.
func (p *peer) read() {
	for {
		if err := p.readOne(); err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("its connection has ended")
			}
			if _, ok := errors.AsType[*MismatchError](err); !ok {
				err = p.lost(err)
			}
			p.g.fail(err)
			return
		}
	}
}

func (p *peer) readOne() error {
	var b [headSize]byte
	if _, err := io.ReadFull(p.in, b[:]); err != nil {
		return err
	}
	h, err := parseHead(&b)
	if err != nil {
		return err
	}
	switch h.kind {
	case kindData, kindPart, kindEnd:
		return p.pass(h)
	}
	payload := make([]byte, h.length)
	if _, err := io.ReadFull(p.in, payload); err != nil {
		return err
	}
	if h.kind == kindAbort {
		p.g.fail(fmt.Errorf("rank %d reports: %q", p.g.name(p.rank), payload))
		return nil
	}
	call, algorithm, err := decodeCall(payload)
	if err != nil {
		return err
	}
	return p.g.calls.receiveAnnouncement(p.rank, h.number, announced{call, algorithm})
}

// pass hands the connection to the call that waits for the elements that follow.
func (p *peer) pass(h head) error {
	select {
	case p.data <- h:
	case <-p.g.ended.Done():
		return p.g.Err()
	}
	select {
	case <-p.taken:
		return nil
	case <-p.g.ended.Done():
		return p.g.Err()
	}
}

// announce sends the call to the peer immediately.
func (p *peer) announce(number uint64, a announced) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	if err := p.writeCall(number, a); err != nil {
		return p.reasonOf(err)
	}
	return p.reasonOf(p.out.Flush())
}

// writeCall writes the call unless it has been announced to the peer.
func (p *peer) writeCall(number uint64, a announced) error {
	if p.announced == number {
		return nil
	}
	p.announced = number
	payload := a.call.encode(a.algorithm)
	return p.write(head{kindCall, uint32(len(payload)), number}, payload)
}

// lost adds the peer's rank to an error of its connection.
func (p *peer) lost(err error) error {
	if err != nil {
		return fmt.Errorf("rank %d is lost: %w", p.g.name(p.rank), err)
	}
	return nil
}

// reasonOf returns why a connection to the peer has failed with err, which is not that of p.read. A
// peer that ends the group closes its connections after it has sent the reason, which may not have
// been read when a write fails: the peer is lost only if nothing else ends the group within abortTime.
func (p *peer) reasonOf(err error) error {
	if err == nil {
		return nil
	}
	timer := time.NewTimer(abortTime)
	defer timer.Stop()
	select {
	case <-p.g.ended.Done():
		return p.g.Err()
	case <-timer.C:
		return p.lost(err)
	}
}

// send writes elements of the call.
func (p *peer) send(number uint64, a announced, data []byte) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	return p.reasonOf(p.writeData(number, a, data, p.writePayload))
}

// sendPieces writes elements of the call like send, and calls wrote with the number of bytes of data
// that have been written, after each piece and at the end.
func (p *peer) sendPieces(number uint64, a announced, data []byte, wrote func(n int)) error {
	p.writing.Lock()
	defer p.writing.Unlock()
	at := 0
	return p.reasonOf(p.writeData(number, a, data, func(payload []byte) error {
		for len(payload) > 0 {
			n := min(len(payload), pieceSize)
			if err := p.writePayload(payload[:n]); err != nil {
				return err
			}
			if err := p.out.Flush(); err != nil {
				return err
			}
			payload, at = payload[n:], at+n
			wrote(at)
		}
		return nil
	}))
}

// writeData writes elements of the call, those of each message by write.
func (p *peer) writeData(number uint64, a announced, data []byte, write func([]byte) error) error {
	if err := p.writeCall(number, a); err != nil {
		return err
	}
	for first := true; first || len(data) > 0; first = false {
		n := min(len(data), maxData)
		if err := p.writeHead(head{kindData, uint32(n), number}); err != nil {
			return err
		}
		if err := write(data[:n]); err != nil {
			return err
		}
		data = data[n:]
	}
	return p.out.Flush()
}

func (p *peer) write(h head, payload []byte) error {
	if err := p.writeHead(h); err != nil {
		return err
	}
	return p.writePayload(payload)
}

func (p *peer) writeHead(h head) error {
	var b [headSize]byte
	_, err := p.out.Write(h.append(b[:0]))
	return err
}

func (p *peer) writePayload(payload []byte) error {
	_, err := p.out.Write(payload)
	return err
}

// receive reads total bytes of elements. into returns the memory for the bytes from at on, at most
// n of them, and take is called when they have arrived.
func (p *peer) receive(number uint64, total int, into func(at, n int) []byte, take func(at int, piece []byte)) error {
	for at, first := 0, true; first || at < total; first = false {
		h, err := p.await()
		if err != nil {
			return err
		}
		if due := min(total-at, maxData); h.kind != kindData || h.number != number || int(h.length) != due {
			return fmt.Errorf("rank %d sent %d bytes in call %d where %d in call %d were due", p.g.name(p.rank), h.length, h.number, due, number)
		}
		for end := at + int(h.length); at < end; {
			piece := into(at, end-at)
			if _, err := io.ReadFull(p.in, piece); err != nil {
				return p.lost(err)
			}
			take(at, piece)
			at += len(piece)
		}
		p.taken <- struct{}{}
	}
	return nil
}

// await returns the head of the next elements. The caller owns the reading side until it sends to
// p.taken.
func (p *peer) await() (head, error) {
	select {
	case h := <-p.data:
		return h, nil
	case <-p.g.ended.Done():
		return head{}, p.g.Err()
	}
}

// abort sends the peer the reason of the group's end. Elements that are being written are cut off:
// the connection ends anyway.
func (p *peer) abort(why error) {
	deadline := time.Now().Add(abortTime)
	_ = p.conn.SetWriteDeadline(deadline) // Ends a hanging write; a closed connection needs none.
	p.writing.Lock()
	defer p.writing.Unlock()
	text := []byte(why.Error())
	text = text[:min(len(text), maxText)]
	if p.write(head{kind: kindAbort, length: uint32(len(text)), number: 0}, text) == nil {
		_ = p.out.Flush() // If this fails, the peer learns of the end from that of the connection.
	}
}

// close ends the connection. A stream of the fabric passes the reason on, also where the abort could not
// be written behind elements that the peer does not take.
func (p *peer) close(why error) {
	if stream, ok := p.conn.(interface{ Reset(why error) }); ok {
		stream.Reset(why)
		return
	}
	_ = p.conn.Close() // The group has ended already.
}
