//go:build !wasip1

package guesttest

import (
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"
)

// A Bucket is a bucket in memory.
type Bucket struct {
	entries  map[string]entry
	revision int64
}

type entry struct {
	value    []byte
	revision int64
	expires  time.Time // zero for never
}

// Set sets a key's value.
func (b *Bucket) Set(key, value string) { b.put(key, []byte(value)) }

// Value returns a key's value, "" if it is missing.
func (b *Bucket) Value(key string) string { return string(b.get(key).value) }

// Keys returns the keys in order.
func (b *Bucket) Keys() []string {
	keys := slices.Sorted(maps.Keys(b.entries))
	return slices.DeleteFunc(keys, func(key string) bool { return b.get(key).revision == 0 })
}

// get returns a key's current entry. Its revision is 0 if the key does not exist.
func (b *Bucket) get(key string) entry {
	e := b.entries[key]
	if !e.expires.IsZero() && !e.expires.After(time.Now()) {
		return entry{}
	}
	return e
}

func (b *Bucket) put(key string, value []byte) {
	b.putUntil(key, value, time.Time{})
}

func (b *Bucket) putUntil(key string, value []byte, expires time.Time) {
	b.revision++
	b.entries[key] = entry{slices.Clone(value), b.revision, expires}
}

// The operations of a transaction, as numbered in docs/design/0007.
const (
	opPut byte = iota + 1
	opDelete
	opAdd
	opMissing
	opAt
	opPutNew
	opPutFor
)

type op struct {
	code   byte
	key    string
	number int64
	value  []byte
}

var (
	errTxn = errors.New("transaction: cut short or of an unknown operation")
	errTTL = errors.New("transaction: a key is put for less than a second")
)

// decode decodes the operations that package guest has encoded.
func decode(b []byte) ([]op, error) {
	var ops []op
	for len(b) > 0 {
		o, rest, err := decodeOne(b)
		if err != nil {
			return nil, err
		}
		ops, b = append(ops, o), rest
	}
	return ops, nil
}

func decodeOne(b []byte) (op, []byte, error) {
	code, b := b[0], b[1:]
	key, b, ok := text(b)
	if !ok || len(b) < 8 || code < opPut || code > opPutFor {
		return op{}, nil, errTxn
	}
	number := int64(binary.LittleEndian.Uint64(b))
	value, b, ok := text(b[8:])
	if !ok {
		return op{}, nil, errTxn
	}
	return op{code, string(key), number, value}, b, nil
}

func text(b []byte) (text, rest []byte, ok bool) {
	if len(b) < 4 {
		return nil, nil, false
	}
	size, rest := uint64(binary.LittleEndian.Uint32(b)), b[4:]
	if size > uint64(len(rest)) {
		return nil, nil, false
	}
	return rest[:size], rest[size:], true
}

// txn executes all operations, or returns the index of the first whose condition is not
// met and executes none.
func (b *Bucket) txn(encoded []byte) (int, error) {
	ops, err := decode(encoded)
	if err != nil {
		return 0, err
	}
	draft := &Bucket{maps.Clone(b.entries), b.revision}
	for i, o := range ops {
		held, err := draft.do(o)
		if err != nil {
			return 0, err
		}
		if !held {
			return i, nil
		}
	}
	*b = *draft
	return -1, nil
}

// do executes one operation and reports whether its condition is met.
func (b *Bucket) do(o op) (bool, error) {
	now := b.get(o.key)
	there := now.revision != 0
	switch o.code {
	case opPut:
		b.put(o.key, o.value)
	case opDelete:
		delete(b.entries, o.key)
	case opAdd:
		return b.add(o)
	case opMissing:
		return !there, nil
	case opAt:
		return now.revision == o.number, nil
	case opPutNew:
		if there {
			return false, nil
		}
		b.put(o.key, o.value)
	case opPutFor:
		ttl := time.Duration(o.number) * time.Millisecond
		if ttl < time.Second {
			return false, errTTL
		}
		b.putUntil(o.key, o.value, time.Now().Add(ttl))
	}
	return true, nil
}

func (b *Bucket) add(o op) (bool, error) {
	least, err := strconv.ParseInt(string(o.value), 10, 64)
	if err != nil {
		return false, err
	}
	var now int64
	e := b.get(o.key)
	if e.revision != 0 {
		if now, err = strconv.ParseInt(string(e.value), 10, 64); err != nil {
			return false, err
		}
	}
	sum := now + o.number
	if sum < least {
		return false, nil
	}
	b.putUntil(o.key, strconv.AppendInt(nil, sum, 10), e.expires)
	return true, nil
}
