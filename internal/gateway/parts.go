package gateway

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Limits of messages between nodes.
const (
	// maxEnvelope is the size of an envelope that a server of NATS takes, unless it is configured
	// otherwise.
	maxEnvelope = 1 << 20
	// maxPart is how many bytes of a larger message a part has.
	maxPart = 512 << 10
	// maxPartials is how many incomplete messages an app has on a node.
	maxPartials = 256
	// maxPartialBytes is how many bytes they have together, and so the size of a message.
	maxPartialBytes = 64 << 20
	// partLimit is how long an incomplete message waits for its next part.
	partLimit = 30 * time.Second
)

// partHeader is the size of the beginning of a part, after its letter: the message's random number,
// the number of bytes of the message that are in earlier parts, and those of all of the message.
const partHeader = 8 + 8 + 8

// publishMessage sends a message to other nodes: in one envelope, or in parts, which arrive in
// their order. A node of a version without parts ignores them.
func (h *hub) publishMessage(ctx context.Context, subject, name string, m outgoing) error {
	if len(m.data) <= maxEnvelope-len(name)-2 {
		return h.publish(ctx, subject, envelope(name, m.letter(), m.data))
	}
	if len(m.data) > maxPartialBytes {
		return fmt.Errorf("a message of %d bytes: %v at most reach other nodes", len(m.data), outboard.Bytes(maxPartialBytes))
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
type partials struct {
	budget *quota.Budget

	mu       sync.Mutex
	byKey    map[partialKey]*partial
	reserved int64 // bytes of the budget
}

// partialKey identifies a message. room is nil for a message to a socket. While the subscription of
// a room that was left ends, the parts of a message may reach that of its successor, too.
type partialKey struct {
	room   *room
	name   string
	number uint64
}

// partial is a message of which parts are missing. The capacity of data is reserved.
type partial struct {
	data   []byte
	size   uint64
	expiry *time.Timer
}

// add adds a part, and returns the message when it is complete. A message is dropped if a part is
// missing, or if its bytes exceed the tenant's budget or maxPartialBytes.
func (p *partials) add(r *room, name string, part []byte) (data []byte, ok bool) {
	if len(part) <= partHeader || len(name) > maxRoomName {
		return nil, false
	}
	key := partialKey{r, name, binary.BigEndian.Uint64(part)}
	done, size := binary.BigEndian.Uint64(part[8:]), binary.BigEndian.Uint64(part[16:])
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.byKey[key]
	if m == nil && done == 0 && len(p.byKey) < maxPartials {
		m = p.beginLocked(key, size)
	}
	if m == nil {
		return nil, false // its beginning was dropped, or sent before this node subscribed
	}
	m.expiry.Reset(partLimit)
	if done != uint64(len(m.data)) || size != m.size || !p.appendLocked(m, part[partHeader:]) {
		p.dropLocked(key, m)
		return nil, false
	}
	if uint64(len(m.data)) < size {
		return nil, false
	}
	p.dropLocked(key, m)
	return m.data, true
}

func (p *partials) beginLocked(key partialKey, size uint64) *partial {
	m := &partial{size: size}
	m.expiry = time.AfterFunc(partLimit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.byKey[key] == m {
			p.dropLocked(key, m)
		}
	})
	p.byKey[key] = m
	return m
}

// appendLocked appends bytes to a message, unless they exceed its size or a limit.
func (p *partials) appendLocked(m *partial, b []byte) bool {
	length := len(m.data) + len(b)
	if uint64(length) > m.size {
		return false
	}
	if length > cap(m.data) {
		bigger := int(min(m.size, uint64(max(length, 2*cap(m.data)))))
		more := int64(bigger - cap(m.data))
		if p.reserved+more > maxPartialBytes || p.budget.TryReserve(more) != nil {
			return false
		}
		p.reserved += more
		m.data = append(make([]byte, 0, bigger), m.data...)
	}
	m.data = append(m.data, b...)
	return true
}

// dropLocked removes a message and its charge. Outboxes charge a complete one anew.
func (p *partials) dropLocked(key partialKey, m *partial) {
	m.expiry.Stop()
	delete(p.byKey, key)
	p.reserved -= int64(cap(m.data))
	p.budget.Release(int64(cap(m.data)))
}

// drop removes the messages to a room, or to sockets if it is nil.
func (p *partials) drop(r *room) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, m := range p.byKey {
		if key.room == r {
			p.dropLocked(key, m)
		}
	}
}
