package collective

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"sync"
	"time"
)

// A call with a Loss whose group has Paths sends all its elements in datagrams, as chunks. The
// receiver reports over a stream which datagrams it lacks, while others are still on their way, and
// the sender repeats their chunks: all that the all-gather sends, and of the reduce-scatter all but
// the least important chunks, up to the bound (MLT, see lossy.go). A lost datagram delays no other
// one, and does not slow down the sender, as it does with TCP: the rate of the sender begins with that
// of the measured link, and falls only when more than a tenth is lost.
//
// The stream beside the datagrams carries messages: the kind (1 byte, 3 of zeros), the payload's
// length (4 bytes), the number of the call (8 bytes), that of the step in the call (4 bytes), all
// little-endian, and the payload. A datagram's place is its number among all datagrams of the call,
// repeated ones as well.
const (
	pathReady    = 1 // no payload: the receiver expects the chunks of all steps of the call
	pathOptional = 2 // payload: a bit map of the step's chunks that may be lost; before the step's first datagram
	pathEnd      = 3 // payload: the place (4 bytes) behind the last datagram sent, with which all chunks of the step have been sent
	pathReport   = 4 // payload: see report
	pathChunk    = 5 // payload: the number of a chunk (4 bytes) and its elements
	pathDone     = 6 // payload: how many chunks (4 bytes) of the step are lost; no others are missing
)

const (
	pathHead = 20
	// chunkHead is the size of the header of a datagram: the number of the call (8 bytes), and those of
	// the step, of the chunk, of its place, and of the microsecond at which it was sent (4 bytes each).
	chunkHead = 24
	// chunkSize is the size of a chunk in bytes, a multiple of all elements' sizes.
	chunkSize = 1184
	// wireSize is what a chunk takes on an Ethernet link.
	wireSize = chunkHead + chunkSize + 86
	// maxOptional bounds the payload of pathOptional: the bits of a step of 1 GiB.
	maxOptional = (1<<30/chunkSize)/8 + 1
	// maxReported bounds the datagrams that a report names.
	maxReported = 16 << 10
	// maxRepeats is the number of datagrams with the same chunk, after which chunks are sent over the
	// stream.
	maxRepeats = 6
	// maxPathMessages bounds the messages of a rank that this rank has not processed.
	maxPathMessages = 1024
	// straggling is how much longer than the message that follows it a datagram may take.
	straggling = 2 * time.Millisecond
	// reportInterval is how often a receiver reports while datagrams arrive. A datagram that arrives
	// later than those behind it by more than that counts as lost.
	reportInterval = 5 * time.Millisecond
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
	// datagram is the memory of a datagram that is sent.
	datagram []byte
	// rate is the number of bytes per second that are sent; dead says that no datagram arrives: chunks
	// are sent over the stream; lossy that a datagram was lost. They belong to the sending call.
	rate        float64
	dead, lossy bool

	toSender, toReceiver chan pathMessage

	mu  sync.Mutex
	sum *datagramSum // whose chunks are expected, nil for none
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
		datagram: make([]byte, 0, chunkHead+chunkSize),
		toSender: make(chan pathMessage, maxPathMessages), toReceiver: make(chan pathMessage, maxPathMessages),
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

func chunksOf(size int) int { return (size + chunkSize - 1) / chunkSize }

func chunkAt(data []byte, i int) []byte {
	return data[i*chunkSize : min((i+1)*chunkSize, len(data))]
}

// deliver passes a chunk to the call that expects it.
func (p *chunkPath) deliver(c chunk) {
	p.mu.Lock()
	sum := p.sum
	p.mu.Unlock()
	if sum != nil && sum.number == c.number {
		sum.deliver(c)
	}
}

func (p *chunkPath) expect(s *datagramSum) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.sum = s
}

func (p *chunkPath) readDatagrams() {
	buf := new(Group).aside(2 << 10) // aligned to all elements
	for {
		n, err := p.Path.Receive(buf)
		if err != nil {
			return // The path has ended: the group does so because of its streams.
		}
		if c, ok := parseChunk(buf[:n]); ok {
			p.deliver(c)
		}
	}
}

// A chunk is a part of a step's elements as it arrives.
type chunk struct {
	number   uint64
	step     uint32
	index    uint32
	place    int64 // of its datagram; -1: it came over the stream
	sent     uint32
	elements []byte
}

// append appends the datagram with the chunk.
func (c *chunk) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint64(b, c.number)
	b = binary.LittleEndian.AppendUint32(b, c.step)
	b = binary.LittleEndian.AppendUint32(b, c.index)
	b = binary.LittleEndian.AppendUint32(b, uint32(c.place))
	b = binary.LittleEndian.AppendUint32(b, c.sent)
	return append(b, c.elements...)
}

// parseChunk parses a datagram. Elements are aligned if the datagram is.
func parseChunk(b []byte) (chunk, bool) {
	if len(b) <= chunkHead || len(b) > chunkHead+chunkSize {
		return chunk{}, false
	}
	return chunk{
		number: binary.LittleEndian.Uint64(b), step: binary.LittleEndian.Uint32(b[8:]), index: binary.LittleEndian.Uint32(b[12:]),
		place: int64(binary.LittleEndian.Uint32(b[16:])), sent: binary.LittleEndian.Uint32(b[20:]), elements: b[chunkHead:],
	}, true
}

// readStream processes the messages of the stream until it ends.
func (p *chunkPath) readStream() {
	in := bufio.NewReaderSize(p.Stream, 8<<10)
	for {
		m, err := readPathMessage(in)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			err = errors.New("its stream of datagrams has ended")
		}
		if err != nil {
			p.g.fail(p.g.peers[p.rank].reasonOf(err))
			return
		}
		if err := p.dispatch(m); err != nil {
			p.g.fail(p.g.peers[p.rank].lost(err))
			return
		}
	}
}

// dispatch passes a message to the call that waits for it.
func (p *chunkPath) dispatch(m pathMessage) error {
	to := p.toSender
	switch m.kind {
	case pathChunk:
		elements := new(Group).aside(chunkSize)[:0] // aligned to all elements
		elements = append(elements, m.payload[4:]...)
		p.deliver(chunk{number: m.number, step: m.step, index: number(m.payload), place: -1, elements: elements})
		return nil
	case pathOptional, pathEnd:
		to = p.toReceiver
	}
	select {
	case to <- m:
		return nil
	default:
		return fmt.Errorf("more than %d messages beside datagrams", maxPathMessages)
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
	case pathReady:
	case pathOptional:
		most = maxOptional
	case pathEnd, pathDone:
		least, most = 4, 4
	case pathReport:
		least, most = reportHead, reportHead+4*maxReported
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
			return p.g.peers[p.rank].reasonOf(err)
		}
	}
	if !flush {
		return nil
	}
	return p.g.peers[p.rank].reasonOf(p.out.Flush())
}

// check reports whether a message belongs to the call, of that many steps, and not to an earlier one.
func (p *chunkPath) check(x *execution, m pathMessage, steps int) (current bool, err error) {
	if m.number > x.number || m.number == x.number && m.step >= uint32(steps) {
		return false, fmt.Errorf("rank %d sent a message of step %d of call %d in call %d", p.g.name(p.rank), m.step, m.number, x.number)
	}
	return m.number == x.number, nil
}

// reportHead is the size of a report without the datagrams that it names.
const reportHead = 20

// A report tells the sender which datagrams have not arrived, of those before a place. Each datagram is
// reported at most once.
type report struct {
	before  uint32        // all places before it have been reported
	arrived uint32        // of the call so far, late and repeated ones included
	span    time.Duration // in which datagrams have arrived since the last report
	queued  time.Duration // how much longer than the fastest of the call the fastest of these took
	missing []uint32      // places
}

func (r *report) append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint32(b, r.before)
	b = binary.LittleEndian.AppendUint32(b, r.arrived)
	b = binary.LittleEndian.AppendUint64(b, uint64(r.span))
	b = binary.LittleEndian.AppendUint32(b, uint32(min(r.queued.Microseconds(), math.MaxUint32)))
	for _, place := range r.missing {
		b = binary.LittleEndian.AppendUint32(b, place)
	}
	return b
}

func parseReport(b []byte) (report, error) {
	if len(b) < reportHead || len(b)%4 != 0 {
		return report{}, fmt.Errorf("a report of %d bytes", len(b))
	}
	r := report{
		before: binary.LittleEndian.Uint32(b), arrived: binary.LittleEndian.Uint32(b[4:]),
		span:   time.Duration(max(int64(binary.LittleEndian.Uint64(b[8:])), 0)),
		queued: time.Duration(binary.LittleEndian.Uint32(b[16:])) * time.Microsecond,
	}
	for b = b[reportHead:]; len(b) > 0; b = b[4:] {
		r.missing = append(r.missing, binary.LittleEndian.Uint32(b))
	}
	return r, nil
}
