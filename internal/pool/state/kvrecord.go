package state

import (
	"encoding/binary"
	"errors"
	"math"
	"time"
)

// A KVChange is one key's new value.
type KVChange struct {
	Key     string
	Value   []byte
	Deleted bool
	// ExpiresMilli is when the key expires, in milliseconds since 1970; 0 means never.
	ExpiresMilli int64
}

// expired reports whether the key has expired.
func (c KVChange) expired(now time.Time) bool {
	return c.ExpiresMilli != 0 && c.ExpiresMilli <= now.UnixMilli()
}

// A record is the log record of a commit: its identifier and its changes.
type record struct {
	id      string
	changes []KVChange
}

var errRecord = errors.New("a commit's record is corrupt")

const (
	changePut    = 0
	changeDelete = 1
	changePutFor = 2
)

// ChangeOverhead bounds what a change adds to the record of a commit beside its key and value, in
// bytes: the changes of a commit may be many and small.
const ChangeOverhead = 1 + binary.MaxVarintLen64 + 2*binary.MaxVarintLen32

// encode encodes the record: id, number of changes, then for each change its
// type (u8), the expiry of a changePutFor, key and value. Numbers are unsigned
// varints.
func (r record) encode() []byte {
	size := len(r.id) + 2*binary.MaxVarintLen64
	for _, c := range r.changes {
		size += ChangeOverhead + len(c.Key) + len(c.Value)
	}
	b := appendText(make([]byte, 0, size), r.id)
	b = binary.AppendUvarint(b, uint64(len(r.changes)))
	for _, c := range r.changes {
		b = appendText(c.appendHow(b), c.Key)
		b = appendText(b, c.Value)
	}
	return b
}

func (c KVChange) appendHow(b []byte) []byte {
	switch {
	case c.Deleted:
		return append(b, changeDelete)
	case c.ExpiresMilli > 0:
		return binary.AppendUvarint(append(b, changePutFor), uint64(c.ExpiresMilli))
	}
	return append(b, changePut)
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decodeRecord is the inverse of encode. The values are slices of data.
func decodeRecord(data []byte) (record, error) {
	id, data, ok := cutText(data)
	if !ok {
		return record{}, errRecord
	}
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)) {
		return record{}, errRecord
	}
	data = data[size:]
	r := record{id: string(id), changes: make([]KVChange, n)}
	for i := range r.changes {
		if r.changes[i], data, ok = cutChange(data); !ok {
			return record{}, errRecord
		}
	}
	if len(data) > 0 {
		return record{}, errRecord
	}
	return r, nil
}

func cutChange(data []byte) (c KVChange, rest []byte, ok bool) {
	rest, ok = c.cutHow(data)
	if !ok {
		return c, nil, false
	}
	key, rest, ok := cutText(rest)
	if !ok {
		return c, nil, false
	}
	c.Key = string(key)
	c.Value, rest, ok = cutText(rest)
	return c, rest, ok
}

func (c *KVChange) cutHow(data []byte) (rest []byte, ok bool) {
	if len(data) == 0 || data[0] > changePutFor {
		return nil, false
	}
	how, data := data[0], data[1:]
	c.Deleted = how == changeDelete
	if how != changePutFor {
		return data, true
	}
	at, size := binary.Uvarint(data)
	if size <= 0 || at == 0 || at > math.MaxInt64 {
		return nil, false
	}
	c.ExpiresMilli = int64(at)
	return data[size:], true
}

func cutText(data []byte) (text, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil, false
	}
	data = data[size:]
	return data[:n:n], data[n:], true
}
