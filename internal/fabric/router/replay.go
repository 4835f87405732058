package router

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/outboard-run/outboard/fabric/call"
)

// The bounds of the messages that are kept for another attempt, in bytes of memory.
const (
	maxStreamReplay = 1 << 20  // of one stream
	maxReplay       = 16 << 20 // of all streams of a router
)

// The sizes of chunks: each is four times the last, so that short streams need little memory and
// long ones few allocations.
const (
	firstChunk  = 512
	maxChunk    = 128 << 10
	chunkGrowth = 4
)

// A replayBuffer holds the messages that were sent on a stream until its callee begins to answer,
// so that another attempt can send them again. It holds copies: a message of the caller may lie in
// the caller's shared heap, and the caller may need that memory for the messages for which the
// callee waits.
//
// A chunk is a sequence of records: the length of a message, shifted left by one bit for its
// Compressed flag, as a little-endian uint32, and the message.
type replayBuffer struct {
	used   *atomic.Int64 // bytes of all streams of the router
	chunks [][]byte
	size   int // capacity of the chunks
	// incomplete means that a message was not kept: there can be no other attempt.
	incomplete bool
}

const recordHeader = 4

// appendCopy copies a message. It drops the buffer and returns false if the message exceeds a bound.
func (b *replayBuffer) appendCopy(m *call.Message) bool {
	if b.incomplete {
		return false
	}
	data, err := m.Bytes()
	if err != nil || !b.reserve(recordHeader+len(data)) {
		b.drop()
		return false
	}
	last := &b.chunks[len(b.chunks)-1]
	length := uint32(len(data)) << 1
	if m.Compressed {
		length |= 1
	}
	*last = append(binary.LittleEndian.AppendUint32(*last, length), data...)
	return true
}

// reserve makes space for n bytes in the last chunk.
func (b *replayBuffer) reserve(n int) bool {
	next := firstChunk
	if len(b.chunks) > 0 {
		last := b.chunks[len(b.chunks)-1]
		if cap(last)-len(last) >= n {
			return true
		}
		next = min(chunkGrowth*cap(last), maxChunk)
	}
	next = max(next, n)
	if b.size+next > maxStreamReplay {
		return false
	}
	if b.used.Add(int64(next)) > maxReplay {
		b.used.Add(-int64(next))
		return false
	}
	b.size += next
	b.chunks = append(b.chunks, make([]byte, 0, next))
	return true
}

// drop frees the messages.
func (b *replayBuffer) drop() {
	if b.incomplete {
		return
	}
	b.used.Add(-int64(b.size))
	*b = replayBuffer{used: b.used, incomplete: true}
}

// send sends the messages until one can't be sent, because the call has ended.
func (b *replayBuffer) send(up call.ClientStream) {
	for _, chunk := range b.chunks {
		for len(chunk) > 0 {
			length := binary.LittleEndian.Uint32(chunk)
			end := recordHeader + int(length>>1)
			m := &call.Message{Data: chunk[recordHeader:end:end], Compressed: length&1 != 0}
			if up.Send(m) != nil {
				return
			}
			chunk = chunk[end:]
		}
	}
}
