package trace

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
)

// End closes a completely written trace. It is stored as JSON in the last block.
type End struct {
	// Records is the number of records.
	Records uint64 `json:"records"`
	// Lost is the number of calls that could not be recorded, for instance because the
	// recording reached its limit, or a process was killed within a call.
	Lost uint64 `json:"lost"`
	// Duration is how long the program ran, in ns from Header.Origin to its end.
	Duration int64 `json:"duration_ns"`
	// Status is the program's exit status.
	Status int `json:"status"`
}

// Writer writes a trace. It is not safe for concurrent use.
type Writer struct {
	w       io.Writer
	header  *Header
	state   blockState
	payload []byte
	head    []byte
	count   uint32
	records uint64
}

// NewWriter writes the beginning of a trace to w.
func NewWriter(w io.Writer, h Header) (*Writer, error) {
	if err := h.validate(); err != nil {
		return nil, fmt.Errorf("trace: header: %w", err)
	}
	text, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	b := append([]byte(magic), make([]byte, 12)...)
	binary.LittleEndian.PutUint32(b[8:], Version)
	binary.LittleEndian.PutUint32(b[12:], uint32(len(text)))
	binary.LittleEndian.PutUint32(b[16:], crc32.Checksum(text, castagnoli))
	if _, err := w.Write(append(b, text...)); err != nil {
		return nil, err
	}
	t := &Writer{w: w, header: &h}
	t.state.reset()
	return t, nil
}

// Write adds a record. Records come in the order in which their calls began; the calls of one
// thread do not overlap.
func (t *Writer) Write(r *Record) error {
	switch {
	case int(r.Op) >= len(t.header.Ops):
		return fmt.Errorf("trace: function %d of %d", r.Op, len(t.header.Ops))
	case int(r.Device) >= len(t.header.Devices):
		return fmt.Errorf("trace: device %d of %d", r.Device, len(t.header.Devices))
	case len(r.Waits) > maxWaits:
		return fmt.Errorf("trace: a call that waits for %d events: want at most %d", len(r.Waits), maxWaits)
	}
	if err := r.validate(); err != nil {
		return fmt.Errorf("trace: %w", err)
	}
	t.payload = t.state.append(t.payload, r)
	t.count++
	t.records++
	if len(t.payload) < blockSize && len(t.state.ends) < maxBlockThreads {
		return nil
	}
	return t.Flush()
}

// Records returns the number of records that were written.
func (t *Writer) Records() uint64 { return t.records }

// Flush ends the block: the records written so far can be read.
func (t *Writer) Flush() error {
	if t.count == 0 {
		return nil
	}
	err := t.block(recordBlock, t.count, t.payload)
	t.payload, t.count = t.payload[:0], 0
	t.state.reset()
	return err
}

// Close flushes the last block and writes the end, whose number of records it sets. It does not
// close the underlying writer.
func (t *Writer) Close(end End) error {
	if err := t.Flush(); err != nil {
		return err
	}
	end.Records = t.records
	text, err := json.Marshal(end)
	if err != nil {
		return err
	}
	return t.block(endBlock, 0, text)
}

func (t *Writer) block(kind byte, records uint32, payload []byte) error {
	h := blockHead{kind: kind, records: records, size: uint32(len(payload)), sum: crc32.Checksum(payload, castagnoli)}
	t.head = h.append(t.head[:0])
	if _, err := t.w.Write(t.head); err != nil {
		return err
	}
	_, err := t.w.Write(payload)
	return err
}
