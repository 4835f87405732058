package trace

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

// Version is the format's version. A reader refuses other versions.
const Version = 1

// magic begins every trace.
const magic = "OBTRACE\n"

// The bounds of the format.
const (
	// maxBlock is the largest payload of a block; a writer ends a block at blockSize.
	maxBlock  = 1 << 20
	blockSize = 64 << 10
	// maxWaits bounds the events that one call waits for.
	maxWaits = 1 << 14
	// maxBlockThreads bounds the threads whose state a block's reader keeps.
	maxBlockThreads = 1 << 14
)

// The kinds of blocks.
const (
	recordBlock = 1
	endBlock    = 2
)

// blockHead precedes a block's payload: u8 kind, 3 bytes 0, u32 records, u32 size of the
// payload, u32 CRC-32C of the payload.
type blockHead struct {
	kind    byte
	records uint32
	size    uint32
	sum     uint32
}

const blockHeadSize = 16

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func (h blockHead) append(b []byte) []byte {
	b = append(b, h.kind, 0, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.records)
	b = binary.LittleEndian.AppendUint32(b, h.size)
	return binary.LittleEndian.AppendUint32(b, h.sum)
}

func parseBlockHead(b []byte) (blockHead, error) {
	h := blockHead{
		kind: b[0], records: binary.LittleEndian.Uint32(b[4:]),
		size: binary.LittleEndian.Uint32(b[8:]), sum: binary.LittleEndian.Uint32(b[12:]),
	}
	switch {
	case h.kind != recordBlock && h.kind != endBlock || b[1] != 0 || b[2] != 0 || b[3] != 0:
		return h, fmt.Errorf("a block of unknown kind %#x", binary.LittleEndian.Uint32(b))
	case h.size == 0 || h.size > maxBlock:
		return h, fmt.Errorf("a block of %d bytes: want 1 to %d", h.size, maxBlock)
	case h.records > h.size:
		return h, fmt.Errorf("a block with %d records in %d bytes", h.records, h.size)
	}
	return h, nil
}

// The bits of a record's mask: the fields that follow. The most frequent bits come first, since the
// mask is a varint.
const (
	hasGap = 1 << iota
	hasExecute
	hasEncode
	hasWireForward
	hasForward
	sameQueue // the queue of the block's previous record with a queue
	hasBlocked
	hasDevice
	hasEvent
	hasBackward
	hasWireBackward
	newQueue
	hasWaits
	otherThread   // process, thread: differ from those of the previous record
	explicitBegin // begin: the thread's first record in the block
	otherDevice

	maskBits = iota
)

// threadKey identifies a thread of a trace.
type threadKey struct{ process, thread uint32 }

// blockState is the state on which the encoding of a record depends: values of earlier records of
// the block. Both ends reset it at each block.
type blockState struct {
	thread threadKey
	device uint8
	queue  uint64
	event  uint64
	begin  int64
	start  int64
	ends   map[threadKey]int64
}

func (s *blockState) reset() {
	ends := s.ends
	if ends == nil {
		ends = make(map[threadKey]int64)
	}
	clear(ends)
	*s = blockState{ends: ends}
}

// kindBits packs the classification of a record's call into 7 bits.
func (r *Record) kindBits() uint64 {
	return uint64(r.Class) | uint64(r.Blocking)<<2 | bit(r.Command)<<4 | bit(r.OutOfOrder)<<5 | bit(r.Failed)<<6
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}
