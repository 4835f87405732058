package recording

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/outboard-run/outboard"
)

// The layout of a process's file: cmd/libsession/record/record.h.
const (
	chunkSize     = 64 << 10
	chunkHeadSize = 64
	fileVersion   = 2

	callSize   = 13 * 8
	deviceSize = 5 * 8
	workerHead = 2 * 8
	nameHead   = 3 * 8
)

// The kinds of streams and of records.
const (
	threadStream = 1
	linkStream   = 2
	nameStream   = 3

	callRecord   = 1
	deviceRecord = 2
	workerRecord = 3
	threadRecord = 4
	nameRecord   = 5
)

// The flags of a call.
const (
	flagFailed   = 1
	flagSent     = 2
	flagWaited   = 4
	flagBlocking = 8
	flagCurrent  = 16 // a map of contents that the driver library would hold
	flagNotice   = 32 // the program has learnt that the event is complete
)

// maxChunks bounds the chunks of a process's file, which the library bounds by default to 4 GiB.
const maxChunks = 1 << 22

// stream holds the places of the chunks of one stream, in order.
type stream struct {
	file   *os.File
	kind   uint16
	chunks []chunk
	lost   uint64
}

// chunk is the place of one chunk: its index in the stream, and its offset in the file.
type chunk struct {
	index  uint32
	offset int64
}

// process is one process's file.
type process struct {
	file    *os.File
	pid     uint32
	opened  int64  // ns of CLOCK_MONOTONIC
	lost    uint64 // calls of streams without a chunk
	threads []*stream
	links   map[uint32]*stream
	names   []*stream
}

func malformed(format string, args ...any) error {
	return &outboard.Error{Op: "recording", Kind: outboard.Invalid, Err: fmt.Errorf(format, args...)}
}

// openProcess finds the streams of a process's file.
func openProcess(path string) (*process, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	p := &process{file: file, links: make(map[uint32]*stream)}
	if err := p.index(); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return p, nil
}

type chunkHead struct {
	kind, version        uint16
	stream, index, pid   uint32
	used                 uint32
	opened, lost, others uint64
	first                byte // the first byte of the magic: 0 for a chunk that was never begun
	link                 uint32
	magicIsRight, isSane bool
}

func parseChunkHead(b []byte) chunkHead {
	h := chunkHead{
		first: b[0], version: binary.LittleEndian.Uint16(b[4:]), kind: binary.LittleEndian.Uint16(b[6:]),
		stream: binary.LittleEndian.Uint32(b[8:]), pid: binary.LittleEndian.Uint32(b[16:]),
		link: binary.LittleEndian.Uint32(b[20:]), opened: binary.LittleEndian.Uint64(b[24:]),
		used: binary.LittleEndian.Uint32(b[32:]), index: binary.LittleEndian.Uint32(b[36:]), lost: binary.LittleEndian.Uint64(b[40:]),
		others: binary.LittleEndian.Uint64(b[48:]),
	}
	h.magicIsRight = string(b[:4]) == "OBRC"
	h.isSane = h.used >= chunkHeadSize && h.used <= chunkSize && h.version == fileVersion
	return h
}

// index reads the heads of all chunks.
func (p *process) index() error {
	streams, err := p.readHeads()
	for _, s := range streams {
		if err == nil {
			err = s.order()
		}
	}
	return err
}

// order sorts the chunks by their index. Of two with the same index, which a process leaves that was
// killed while it copied the chunk into which it writes, the first in the file is whole.
func (s *stream) order() error {
	slices.SortStableFunc(s.chunks, func(a, b chunk) int { return cmp.Compare(a.index, b.index) })
	s.chunks = slices.CompactFunc(s.chunks, func(a, b chunk) bool { return a.index == b.index })
	for i, c := range s.chunks {
		if int(c.index) != i {
			return malformed("a stream without its chunk %d", i)
		}
	}
	return nil
}

// readHeads returns the streams by their numbers. Their chunks are in the order of the file.
func (p *process) readHeads() (map[uint32]*stream, error) {
	byNumber := make(map[uint32]*stream)
	var head [chunkHeadSize]byte
	for n := range int64(maxChunks) {
		_, err := p.file.ReadAt(head[:], n*chunkSize)
		if errors.Is(err, io.EOF) {
			return byNumber, nil
		}
		if err != nil {
			return nil, err
		}
		h := parseChunkHead(head[:])
		switch {
		case h.first == 0:
			continue // the process ended between the allocation and the first write
		case !h.magicIsRight || !h.isSane:
			return nil, malformed("chunk %d is none of this version: the program has another build's driver library", n)
		}
		p.pid, p.opened = h.pid, int64(h.opened)
		s := byNumber[h.stream]
		if s == nil {
			s = &stream{file: p.file, kind: h.kind}
			byNumber[h.stream] = s
			p.addStream(s, h)
		}
		if s.kind != h.kind {
			return nil, malformed("chunk %d is of another kind than its stream", n)
		}
		s.chunks = append(s.chunks, chunk{h.index, n * chunkSize})
		s.lost, p.lost = max(s.lost, h.lost), max(p.lost, h.others)
	}
	return nil, malformed("more than %d chunks", maxChunks)
}

func (p *process) addStream(s *stream, h chunkHead) {
	switch h.kind {
	case threadStream:
		p.threads = append(p.threads, s)
	case linkStream:
		p.links[h.link] = s
	case nameStream:
		p.names = append(p.names, s)
	}
}

// cursor reads the records of a stream.
type cursor struct {
	s    *stream
	next int // index of the next chunk
	buf  []byte
	rest []byte
}

func (s *stream) cursor() *cursor { return &cursor{s: s} }

// record is one raw record.
type record struct {
	kind, flags byte
	op          uint16
	link        uint8
	body        []byte // after the first word; valid until the next record
}

// read returns the next record, or io.EOF.
func (c *cursor) read() (record, error) {
	for len(c.rest) == 0 {
		if c.next == len(c.s.chunks) {
			return record{}, io.EOF
		}
		if err := c.load(c.s.chunks[c.next].offset); err != nil {
			return record{}, err
		}
		c.next++
	}
	if len(c.rest) < 8 {
		return record{}, malformed("a record of %d bytes", len(c.rest))
	}
	size := int(binary.LittleEndian.Uint16(c.rest))
	if size < 16 || size%8 != 0 || size > len(c.rest) {
		return record{}, malformed("a record of %d bytes where %d are left", size, len(c.rest))
	}
	r := record{
		kind: c.rest[2], flags: c.rest[3], op: binary.LittleEndian.Uint16(c.rest[4:]), link: c.rest[6],
		body: c.rest[8:size:size],
	}
	c.rest = c.rest[size:]
	return r, nil
}

func (c *cursor) load(offset int64) error {
	if c.buf == nil {
		c.buf = make([]byte, chunkSize)
	}
	n, err := c.s.file.ReadAt(c.buf, offset)
	if n < chunkHeadSize {
		return errors.Join(err, malformed("a chunk that was cut off"))
	}
	used := min(int(binary.LittleEndian.Uint32(c.buf[32:])), n)
	if used < chunkHeadSize {
		return malformed("a chunk of %d bytes", used)
	}
	c.rest = c.buf[chunkHeadSize:used]
	return nil
}

// rawCall is a call as the library stores it; handles are addresses.
type rawCall struct {
	op                uint16
	flags             byte
	link              uint8
	number            uint64
	begin, duration   int64
	queue, event      uint64
	object, detail    uint64
	forward, backward uint64
	serial            uint64
	encode, blocked   int64
	waits             []uint64
}

func parseCall(r *record, c *rawCall) error {
	if len(r.body) < callSize-8 {
		return malformed("a call of %d bytes", len(r.body)+8)
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(r.body[8*i:]) }
	waits := c.waits[:0]
	*c = rawCall{
		op: r.op, flags: r.flags, link: r.link,
		number: word(0), begin: int64(word(1)), duration: int64(word(2)), queue: word(3), event: word(4),
		object: word(5), detail: word(6), forward: word(7), backward: word(8), serial: word(9),
		encode: int64(word(10)), blocked: int64(word(11)),
	}
	for b := r.body[callSize-8:]; len(b) >= 8; b = b[8:] {
		waits = append(waits, binary.LittleEndian.Uint64(b))
	}
	c.waits = waits
	if c.begin < 0 || c.duration < 0 || c.encode < 0 || c.blocked < 0 {
		return malformed("a call with a negative time")
	}
	return nil
}
