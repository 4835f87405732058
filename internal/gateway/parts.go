package gateway

import (
	"context"
	"encoding/binary"
	"strings"
	"time"
)

// maxPart is how many bytes of a message an envelope carries. Servers of NATS take messages of 1 MiB,
// unless they are configured otherwise.
const maxPart = 512 << 10

// partLimit is how long an incomplete message waits for its next part.
const partLimit = 30 * time.Second

// partHeader is the size of the beginning of a part, after its letter: the message's random number,
// the number of bytes of the message that are in earlier parts, and those of all of the message.
const partHeader = 8 + 8 + 8

// publishMessage sends a message to other nodes: in one envelope, or in parts, which arrive in their
// order. A node of a version without parts ignores them.
func (h *hub) publishMessage(ctx context.Context, subject, name string, m outgoing) error {
	if len(m.data) <= maxPart {
		return h.publish(ctx, subject, envelope(name, m.letter(), m.data))
	}
	var number [8]byte
	fill(number[:])
	for done := 0; done < len(m.data); done += maxPart {
		part := binary.BigEndian.AppendUint64(number[:], uint64(done))
		part = binary.BigEndian.AppendUint64(part, uint64(len(m.data)))
		part = append(part, m.data[done:min(done+maxPart, len(m.data))]...)
		if err := h.publish(ctx, subject, envelope(name, m.partLetter(), part)); err != nil {
			return err
		}
	}
	return nil
}

func (m outgoing) partLetter() byte { return strings.ToUpper(string(m.letter()))[0] }

// partials are the messages of other nodes that a hub has received in part.
type partials map[partialKey]*partial

type partialKey struct {
	name   string
	number uint64
}

// partial is a message of which parts are missing. Its bytes are charged to the tenant.
type partial struct {
	data   []byte
	size   uint64
	expiry *time.Timer
}

// addPart adds a part, and returns the message when it is complete. A message of which a part is
// missing, or whose bytes the tenant's budget does not cover, is dropped.
func (h *hub) addPart(name string, part []byte) (data []byte, ok bool) {
	if len(part) <= partHeader {
		return nil, false
	}
	key := partialKey{name, binary.BigEndian.Uint64(part)}
	done, size, part := binary.BigEndian.Uint64(part[8:]), binary.BigEndian.Uint64(part[16:]), part[partHeader:]
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.partials[key]
	if p == nil && done == 0 {
		p = &partial{size: size}
		p.expiry = time.AfterFunc(partLimit, func() { h.expire(key, p) })
		h.partials[key] = p
	}
	if p == nil {
		return nil, false // its beginning was dropped, or sent before this node subscribed
	}
	p.expiry.Reset(partLimit)
	if done != uint64(len(p.data)) || size != p.size || uint64(len(part)) > size-done || h.sockets.gateway.opts.Buffers.TryReserve(int64(len(part))) != nil {
		h.dropPartial(key, p)
		return nil, false
	}
	p.data = append(p.data, part...)
	if uint64(len(p.data)) < size {
		return nil, false
	}
	h.dropPartial(key, p)
	return p.data, true
}

func (h *hub) expire(key partialKey, p *partial) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.partials[key] == p {
		h.dropPartial(key, p)
	}
}

// dropPartial removes a message and its charge. Outboxes charge a complete one anew.
func (h *hub) dropPartial(key partialKey, p *partial) {
	p.expiry.Stop()
	delete(h.partials, key)
	h.sockets.gateway.opts.Buffers.Release(int64(len(p.data)))
}
