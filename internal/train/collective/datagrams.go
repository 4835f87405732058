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

// A call with a Loss whose group has Paths sends all its elements in datagrams, as chunks. The
// receiver reports over a stream which chunks it lacks, and the sender repeats them: all that the
// all-gather sends, and of the reduce-scatter all but the least important chunks, up to the bound
// (MLT, see lossy.go). A lost datagram delays no other one, and does not slow down the sender, as it
// does with TCP: the rate of the sender begins with that of the measured link, and falls only when more
// than a tenth is lost.
//
// The stream beside the datagrams carries messages: the kind (1 byte, 3 of zeros), the payload's
// length (4 bytes), the number of the call (8 bytes), that of the step in the call (4 bytes), all
// little-endian, and the payload.
const (
	pathReady   = 1 // no payload: the receiver expects the chunks of the step
	pathEnd     = 2 // no payload: all chunks of this round were sent
	pathMissing = 3 // payload: nanoseconds (8 bytes) in which the round's chunks arrived, and a bit map of missing chunks
	pathChunk   = 4 // payload: the number of a chunk (4 bytes) and its elements
	pathFinal   = 5 // no payload: what is still missing is lost
)

const (
	pathHead = 20
	// chunkHead is the size of the header of a datagram: the numbers of the call (8 bytes), of the
	// step and of the chunk (4 bytes each).
	chunkHead = 16
	// chunkSize is the size of a chunk in bytes, a multiple of all elements' sizes.
	chunkSize = 1192
	// wireSize is what a chunk takes on an Ethernet link.
	wireSize = chunkHead + chunkSize + 86
	// maxMissing bounds the payload of pathMissing: the bits of a step of 1 GiB.
	maxMissing = 8 + (1<<30/chunkSize)/8 + 1
	// maxRepeats is the number of rounds of datagrams, after which chunks are sent over the stream.
	maxRepeats = 6
	// straggling is how much longer than the message that follows it a datagram may take.
	straggling = 2 * time.Millisecond
)

// A Path carries datagrams to and from another rank. *datagram.Path implements it.
type Path interface {
	// Send sends a datagram, which may be lost.
	Send(payload []byte) error
	// Receive waits for a datagram. It returns an error after Close.
	Receive(buf []byte) (int, error)
	Close() error
}

// A Datagrams is the connection to another rank for calls that may lose parts: datagrams, and a
// stream beside them.
type Datagrams struct {
	Path   Path
	Stream net.Conn
}

func (d *Datagrams) close() {
	_ = d.Path.Close() // Both may have ended already.
	_ = d.Stream.Close()
}

// A chunkPath is a Datagrams of a group.
type chunkPath struct {
	g    *Group
	rank int
	Datagrams

	writing sync.Mutex
	out     *bufio.Writer
	// rate is the number of bytes per second that the next round sends, and dead says that no
	// datagram arrives: chunks are sent over the stream.
	rate float64
	dead bool

	ready, missing, ends chan pathMessage

	mu      sync.Mutex
	arrival *arrival // the step whose chunks are expected, nil for none
}

// A pathMessage is a message of the stream.
type pathMessage struct {
	kind    byte
	number  uint64
	step    uint32
	payload []byte
}

func newChunkPath(g *Group, rank int, d *Datagrams) *chunkPath {
	return &chunkPath{
		g: g, rank: rank, Datagrams: *d, out: bufio.NewWriterSize(d.Stream, 8<<10), rate: g.link.Bandwidth,
		ready: make(chan pathMessage, 1), missing: make(chan pathMessage, 1), ends: make(chan pathMessage, 1),
	}
}

// addPaths starts the paths of a group, of which the neighbours in the ring need one.
func (g *Group) addPaths(all []*Datagrams) error {
	if len(all) == 0 || g.n == 1 {
		return nil
	}
	if len(all) != g.n || all[(g.rank+1)%g.n] == nil || all[(g.rank+g.n-1)%g.n] == nil {
		return fmt.Errorf("rank %d has no datagrams to its neighbours", g.rank)
	}
	g.paths = make([]*chunkPath, g.n)
	for rank, d := range all {
		if d != nil {
			g.paths[rank] = newChunkPath(g, rank, d)
			g.paths[rank].start()
		}
	}
	return nil
}

// start receives until the path ends.
func (p *chunkPath) start() {
	go p.readDatagrams()
	go p.readStream()
}

// An arrival is a step whose chunks are received.
type arrival struct {
	x       *execution
	step    uint32
	to      []byte
	combine bool
	seen    []bool
	left    int           // chunks that have not arrived
	all     chan struct{} // closed when all have arrived
	// first and last are the times at which datagrams of this round have arrived.
	first, last time.Time
}

func chunksOf(size int) int { return (size + chunkSize - 1) / chunkSize }

func chunkAt(data []byte, i int) []byte {
	return data[i*chunkSize : min((i+1)*chunkSize, len(data))]
}

// deliver adds or copies a chunk to its elements, unless it has arrived already or is not expected.
func (p *chunkPath) deliver(number uint64, step, chunk uint32, elements []byte) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.arrival
	if a == nil || a.x.number != number || a.step != step || int64(chunk) >= int64(len(a.seen)) {
		return
	}
	a.last = time.Now()
	if a.first.IsZero() {
		a.first = a.last
	}
	target := chunkAt(a.to, int(chunk))
	if a.seen[chunk] || len(target) != len(elements) {
		return
	}
	if a.seen[chunk] = true; a.combine {
		combine(target, elements, a.x.call.Element, Sum)
	} else {
		copy(target, elements)
	}
	if a.left--; a.left == 0 {
		close(a.all)
	}
}

func (p *chunkPath) readDatagrams() {
	buf := new(Group).aside(2 << 10) // aligned to all elements
	for {
		n, err := p.Path.Receive(buf)
		if err != nil {
			return // The path has ended: the group does so because of its streams.
		}
		if number, step, chunk, elements, ok := parseChunk(buf[:n]); ok {
			p.deliver(number, step, chunk, elements)
		}
	}
}

// parseChunk parses a datagram. Elements are aligned if the datagram is.
func parseChunk(b []byte) (number uint64, step, chunk uint32, elements []byte, ok bool) {
	if len(b) <= chunkHead || len(b) > chunkHead+chunkSize {
		return 0, 0, 0, nil, false
	}
	return binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]), b[chunkHead:], true
}

// readStream processes the messages of the stream until it ends.
func (p *chunkPath) readStream() {
	in := bufio.NewReaderSize(p.Stream, 8<<10)
	for {
		m, err := readPathMessage(in)
		if err == nil {
			err = p.dispatch(m)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				err = errors.New("its stream of datagrams has ended")
			}
			p.g.fail(fmt.Errorf("rank %d is lost: %w", p.g.name(p.rank), err))
			return
		}
	}
}

// dispatch passes a message to the call that waits for it. At most one of each kind is pending,
// since the sender of each waits for an answer.
func (p *chunkPath) dispatch(m pathMessage) error {
	to := p.ends
	switch m.kind {
	case pathChunk:
		chunk := binary.LittleEndian.Uint32(m.payload)
		elements := new(Group).aside(chunkSize)[:0] // aligned to all elements
		elements = append(elements, m.payload[4:]...)
		p.deliver(m.number, m.step, chunk, elements)
		return nil
	case pathReady:
		to = p.ready
	case pathMissing:
		to = p.missing
	}
	select {
	case to <- m:
		return nil
	default:
		return fmt.Errorf("a second message of kind %d", m.kind)
	}
}

// readPathMessage reads a message of the stream and checks its length.
func readPathMessage(in io.Reader) (m pathMessage, err error) {
	var b [pathHead]byte
	if _, err := io.ReadFull(in, b[:]); err != nil {
		return m, err
	}
	m = pathMessage{kind: b[0], number: binary.LittleEndian.Uint64(b[8:]), step: binary.LittleEndian.Uint32(b[16:])}
	length, least, most := binary.LittleEndian.Uint32(b[4:]), uint32(0), uint32(0)
	switch m.kind {
	case pathReady, pathEnd, pathFinal:
	case pathMissing:
		least, most = 8, maxMissing
	case pathChunk:
		least, most = 5, 4+chunkSize
	default:
		return m, fmt.Errorf("a message of kind %d beside datagrams", m.kind)
	}
	if length < least || length > most {
		return m, fmt.Errorf("a message of kind %d with %d bytes beside datagrams", m.kind, length)
	}
	m.payload = make([]byte, length)
	_, err = io.ReadFull(in, m.payload)
	return m, err
}

// write writes a message of a step to the stream; flush sends it at once.
func (p *chunkPath) write(x *execution, kind byte, step uint32, flush bool, payload ...[]byte) error {
	length := 0
	for _, b := range payload {
		length += len(b)
	}
	p.writing.Lock()
	defer p.writing.Unlock()
	var b [pathHead]byte
	head := append(b[:0], kind, 0, 0, 0)
	head = binary.LittleEndian.AppendUint32(head, uint32(length))
	head = binary.LittleEndian.AppendUint64(head, x.number)
	head = binary.LittleEndian.AppendUint32(head, step)
	for _, b := range append([][]byte{head}, payload...) {
		if _, err := p.out.Write(b); err != nil {
			return err
		}
	}
	if !flush {
		return nil
	}
	return p.out.Flush()
}

// await waits for a message of a step.
func (p *chunkPath) await(x *execution, from <-chan pathMessage, step uint32) (pathMessage, error) {
	select {
	case m := <-from:
		if m.number != x.number || m.step != step {
			return m, fmt.Errorf("rank %d sent a message of step %d of call %d in step %d of call %d", p.g.name(p.rank), m.step, m.number, step, x.number)
		}
		return m, nil
	case <-p.g.Ended():
		return pathMessage{}, p.g.Err()
	}
}
