package policy

import (
	"maps"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// ownedHead is a head that an exchange may change, with its metadata. Its memory is used for
// one call after the other.
type ownedHead struct {
	head     call.Head
	metadata metadata.MD
	values   []string // of metadata
	is       bool     // head is the exchange's
	changed  bool     // metadata is the head's
}

// Own makes Head the exchange's own: its fields, but not its metadata, may be changed.
// Whoever uses Head longer than the call calls Keep.
func (x *Exchange) Own() *call.Head {
	if x.owned == nil {
		x.owned = new(ownedHead)
	}
	if o := x.owned; !o.is {
		o.is, o.head = true, *x.Head
		x.Head = &o.head
	}
	return x.Head
}

// Keep says that somebody may still use Head, and its metadata, after the call: the
// memory is left to them.
func (x *Exchange) Keep() { x.owned = nil }

// change makes Head this exchange's own, to be changed with its metadata. Its values are
// replaced, not changed.
func (x *Exchange) change() *call.Head {
	h := x.Own()
	if o := x.owned; !o.changed {
		o.changed = true
		if o.metadata == nil {
			o.metadata = make(metadata.MD, len(h.Metadata)+1)
		}
		maps.Copy(o.metadata, h.Metadata)
		h.Metadata = o.metadata
	}
	return h
}

// maxReusedValues bounds the values that an exchange has memory for, when it is used again.
const maxReusedValues = 64

// value is s as the only value of a key.
func (o *ownedHead) value(s string) []string {
	n := len(o.values)
	o.values = append(o.values, s)
	return o.values[n : n+1 : n+1]
}

// reset makes o ready for the next call. A large map is left to the garbage collector,
// as is memory for many values.
func (o *ownedHead) reset() {
	if len(o.metadata) > maxReusedValues {
		o.metadata = nil
	}
	clear(o.metadata)
	if len(o.values) > maxReusedValues {
		o.values = nil
	}
	clear(o.values)
	o.head, o.values, o.is, o.changed = call.Head{}, o.values[:0], false, false
}
