package guest

import (
	"encoding/binary"
	"strconv"
	"time"
)

// A KV is a bucket: a key-value store of the pool.
type KV struct{ Resource }

// Bucket returns the app's bucket of that name.
func Bucket(name string) *KV { return &KV{Resource{name: "bucket:" + name}} }

// Get returns a key's value and its revision, 0 if there is no such key.
func (b *KV) Get(key string) (value []byte, revision int64, err error) {
	handle, err := b.open()
	if err != nil {
		return nil, 0, err
	}
	return hostGet(handle, key)
}

// Put sets a key's value unconditionally.
func (b *KV) Put(key string, value []byte) error { return b.Txn(Put(key, value)) }

// Delete removes a key if it exists.
func (b *KV) Delete(key string) error { return b.Txn(Delete(key)) }

// Txn executes all operations atomically, or none of them. If a condition is not met, the
// error is a *ConditionError.
func (b *KV) Txn(ops ...Op) error {
	handle, err := b.open()
	if err != nil {
		return err
	}
	failed, err := hostTxn(handle, encode(ops))
	if err != nil || failed < 0 {
		return err
	}
	return conditionError(ops, failed)
}

// An Op is one operation of a transaction.
type Op struct {
	code   opcode
	key    string
	number int64
	value  []byte
}

type opcode byte

const (
	opPut opcode = iota + 1
	opDelete
	opAdd
	opMissing
	opAt
	opPutNew
	opPutFor
)

// Put sets a key's value.
func Put(key string, value []byte) Op { return Op{code: opPut, key: key, value: value} }

// Delete removes a key.
func Delete(key string) Op { return Op{code: opDelete, key: key} }

// Add adds to a decimal number; a missing key counts as 0. Its condition is that the sum
// is at least least.
func Add(key string, delta, least int64) Op {
	return Op{code: opAdd, key: key, number: delta, value: strconv.AppendInt(nil, least, 10)}
}

// Missing returns the condition that the key does not exist.
func Missing(key string) Op { return Op{code: opMissing, key: key} }

// At returns the condition that the key has this revision.
func At(key string, revision int64) Op { return Op{code: opAt, key: key, number: revision} }

// PutNew sets a key's value, on the condition that the key does not exist.
func PutNew(key string, value []byte) Op { return Op{code: opPutNew, key: key, value: value} }

// PutFor sets a key's value with a time to live of at least one second. Add keeps the
// remaining time to live; any put replaces it.
func PutFor(key string, value []byte, ttl time.Duration) Op {
	return Op{code: opPutFor, key: key, number: ttl.Milliseconds(), value: value}
}

// A ConditionError reports a transaction without effect, since one of its conditions is
// not met.
type ConditionError struct {
	// Index is the index of the operation in the transaction.
	Index int
	text  string
}

func (e *ConditionError) Error() string { return e.text }

func conditionError(ops []Op, index int) error {
	text := "operation " + strconv.Itoa(index) + " does not hold"
	if index < len(ops) {
		text += ": " + ops[index].String()
	}
	return &ConditionError{Index: index, text: text}
}

// String describes the operation, for errors and tests.
func (o Op) String() string {
	key := strconv.Quote(o.key)
	switch o.code {
	case opPut:
		return "put " + key
	case opDelete:
		return "delete " + key
	case opAdd:
		return "add " + strconv.FormatInt(o.number, 10) + " to " + key + ", at least " + string(o.value)
	case opMissing:
		return key + " is missing"
	case opAt:
		return key + " has revision " + strconv.FormatInt(o.number, 10)
	case opPutNew:
		return "put " + key + ", which is missing"
	case opPutFor:
		return "put " + key + " for " + strconv.FormatInt(o.number, 10) + " ms"
	}
	return "no operation"
}

// encode encodes operations in the format of docs/design/0007.
func encode(ops []Op) []byte {
	size := 0
	for _, o := range ops {
		size += 1 + 4 + len(o.key) + 8 + 4 + len(o.value)
	}
	b := make([]byte, 0, size)
	for _, o := range ops {
		b = append(b, byte(o.code))
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(o.key))), o.key...)
		b = binary.LittleEndian.AppendUint64(b, uint64(o.number))
		b = append(binary.LittleEndian.AppendUint32(b, uint32(len(o.value))), o.value...)
	}
	return b
}
