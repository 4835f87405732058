package policy

import (
	"maps"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// ownedHead is a head that an exchange may change, with its metadata. Its memory is reused
// from call to call.
type ownedHead struct {
	head          call.Head
	metadata      metadata.MD
	values        []string // memory for values of metadata
	headOwned     bool     // head is the exchange's Head
	metadataOwned bool     // metadata is the metadata of Head
}

// Own returns Head, which it clones on the first call: the caller may change its fields, but not
// its metadata. A user of Head that outlives the call calls ReleaseHead.
func (x *Exchange) Own() *call.Head {
	if x.owned == nil {
		x.owned = new(ownedHead)
	}
	if o := x.owned; !o.headOwned {
		o.headOwned, o.head = true, *x.Head
		x.Head = &o.head
	}
	return x.Head
}

// ReleaseHead leaves the memory of Head and its metadata to users that outlive the call.
func (x *Exchange) ReleaseHead() { x.owned = nil }

// ownMetadata clones Head with its metadata on the first call. Values are replaced, not
// changed.
func (x *Exchange) ownMetadata() *call.Head {
	h := x.Own()
	if o := x.owned; !o.metadataOwned {
		o.metadataOwned = true
		if o.metadata == nil {
			o.metadata = make(metadata.MD, len(h.Metadata)+1)
		}
		maps.Copy(o.metadata, h.Metadata)
		h.Metadata = o.metadata
	}
	return h
}

// maxReusedValues bounds the memory for metadata that an exchange retains.
const maxReusedValues = 64

// value returns s as the only value of a key.
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
	o.head, o.values, o.headOwned, o.metadataOwned = call.Head{}, o.values[:0], false, false
}
