package trace

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/outboard-run/outboard"
)

// Reader reads a trace record by record, in memory that does not depend on its length. It is
// not safe for concurrent use.
type Reader struct {
	in      *bufio.Reader
	header  Header
	state   blockState
	payload []byte
	d       decoder
	left    uint32
	records uint64
	waits   []uint64
	end     *End
	cut     bool
	err     error
}

// NewReader reads the beginning of a trace from r. An error of kind Invalid says why r is not a
// trace.
func NewReader(r io.Reader) (*Reader, error) {
	t := &Reader{in: bufio.NewReaderSize(r, 64<<10)}
	if err := t.readHeader(); err != nil {
		return nil, refused(err)
	}
	return t, nil
}

func refused(err error) error {
	return &outboard.Error{Op: "trace", Kind: outboard.Invalid, Err: err}
}

func (t *Reader) readHeader() error {
	var b [20]byte
	_, err := io.ReadFull(t.in, b[:])
	if err != nil && !isEnd(err) {
		return err
	}
	if err != nil || string(b[:8]) != magic {
		return errors.New("not a trace: make one with `outboard run --trace FILE -- PROGRAM`")
	}
	version, size, sum := binary.LittleEndian.Uint32(b[8:]), binary.LittleEndian.Uint32(b[12:]), binary.LittleEndian.Uint32(b[16:])
	switch {
	case version != Version:
		return fmt.Errorf("a trace of version %d: this release reads version %d; record the program again", version, Version)
	case size > maxHeader:
		return fmt.Errorf("a header of %d bytes: want at most %d", size, maxHeader)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(t.in, text); err != nil {
		if !isEnd(err) {
			return err
		}
		return errors.New("the file ends within its header: the recording was interrupted before it began")
	}
	if crc32.Checksum(text, castagnoli) != sum {
		return errors.New("the header is damaged: its checksum is wrong")
	}
	if err := json.Unmarshal(text, &t.header); err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	if err := t.header.validate(); err != nil {
		return fmt.Errorf("the header: %w", err)
	}
	return nil
}

// Header returns the trace's header.
func (t *Reader) Header() *Header { return &t.header }

// End returns the end of the trace once Next has returned io.EOF, or nil for a trace that was
// cut off.
func (t *Reader) End() *End { return t.end }

// Truncated reports, once Next has returned io.EOF, that the file was cut off or damaged after
// its last whole block.
func (t *Reader) Truncated() bool { return t.cut }

// Records returns the number of records that Next has returned.
func (t *Reader) Records() uint64 { return t.records }

// Next returns the next record, io.EOF after the last whole one, or an error of kind Invalid
// for a trace that no writer makes.
func (t *Reader) Next() (Record, error) {
	for t.err == nil && t.left == 0 {
		t.err = t.nextBlock()
	}
	if t.err != nil {
		return Record{}, t.err
	}
	r, err := t.state.next(&t.d, &t.header, t.waits)
	t.left--
	if err == nil && t.left == 0 && len(t.d.rest) > 0 {
		err = fmt.Errorf("%d bytes after a block's last record", len(t.d.rest))
	}
	if err != nil {
		t.err = refused(fmt.Errorf("record %d: %w", t.records+1, err))
		return Record{}, t.err
	}
	if r.Waits != nil {
		t.waits = r.Waits
	}
	t.records++
	return r, nil
}

// nextBlock reads a block. A file that ends within a block, or a block with a wrong checksum,
// counts as cut off.
func (t *Reader) nextBlock() error {
	var b [blockHeadSize]byte
	if _, err := io.ReadFull(t.in, b[:]); err != nil {
		t.cut = true
		return t.cutOff(err)
	}
	h, err := parseBlockHead(b[:])
	if err != nil {
		return refused(err)
	}
	if cap(t.payload) < int(h.size) {
		t.payload = make([]byte, h.size)
	}
	t.payload = t.payload[:h.size]
	if _, err := io.ReadFull(t.in, t.payload); err != nil {
		t.cut = true
		return t.cutOff(err)
	}
	if crc32.Checksum(t.payload, castagnoli) != h.sum {
		t.cut = true
		return io.EOF
	}
	if h.kind == endBlock {
		return t.readEnd()
	}
	t.state.reset()
	t.d = decoder{rest: t.payload}
	t.left = h.records
	return nil
}

// cutOff returns io.EOF for a file that is too short, and the error of a read otherwise.
func (t *Reader) cutOff(err error) error {
	if isEnd(err) {
		return io.EOF
	}
	return err
}

// isEnd reports whether a read failed since the file is too short.
func isEnd(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }

func (t *Reader) readEnd() error {
	var end End
	if err := json.Unmarshal(t.payload, &end); err != nil {
		return refused(fmt.Errorf("the end: %w", err))
	}
	if end.Records != t.records {
		return refused(fmt.Errorf("the end counts %d records, and there are %d", end.Records, t.records))
	}
	t.end = &end
	return io.EOF
}
