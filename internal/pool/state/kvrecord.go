package state

import (
	"encoding/binary"
	"errors"
)

// A KVChange is one key's new value.
type KVChange struct {
	Key     string
	Value   []byte
	Deleted bool
}

// A record is what a writer commits: a name of the commit, and its changes.
type record struct {
	id      string
	changes []KVChange
}

var errRecord = errors.New("a commit's record is damaged")

const (
	changePut    = 0
	changeDelete = 1
)

// encode writes the record: id, number of changes, then for each one how it
// is changed (u8), key and value. Lengths are unsigned varints.
func (r record) encode() []byte {
	size := len(r.id) + 2*binary.MaxVarintLen64
	for _, c := range r.changes {
		size += 1 + 2*binary.MaxVarintLen32 + len(c.Key) + len(c.Value)
	}
	b := appendText(make([]byte, 0, size), r.id)
	b = binary.AppendUvarint(b, uint64(len(r.changes)))
	for _, c := range r.changes {
		how := byte(changePut)
		if c.Deleted {
			how = changeDelete
		}
		b = appendText(append(b, how), c.Key)
		b = appendText(b, c.Value)
	}
	return b
}

func appendText[T string | []byte](b []byte, text T) []byte {
	return append(binary.AppendUvarint(b, uint64(len(text))), text...)
}

// decodeRecord is the inverse. The values are parts of data.
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
	if len(data) == 0 || data[0] > changeDelete {
		return c, nil, false
	}
	c.Deleted = data[0] == changeDelete
	key, rest, ok := cutText(data[1:])
	if !ok {
		return c, nil, false
	}
	c.Key = string(key)
	c.Value, rest, ok = cutText(rest)
	return c, rest, ok
}

func cutText(data []byte) (text, rest []byte, ok bool) {
	n, size := binary.Uvarint(data)
	if size <= 0 || n > uint64(len(data)-size) {
		return nil, nil, false
	}
	data = data[size:]
	return data[:n:n], data[n:], true
}
