package bucket

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// OpKind is the type of an operation in a transaction: an effect, a condition, or both. Its
// numbers are those of the guests' interface.
type OpKind uint8

const (
	// Put sets a key.
	Put OpKind = 1
	// Delete removes a key, if it is there.
	Delete OpKind = 2
	// Add adds Delta to a decimal number; an absent key counts as 0. The condition is
	// that the value is a number and that the sum is at least Least. The key keeps its
	// expiry.
	Add OpKind = 3
	// Missing is the condition that a key has no value.
	Missing OpKind = 4
	// Revision is the condition that a key has that revision, 0 for no value.
	Revision OpKind = 5
	// PutIfMissing is the condition that a key has no value, and sets it.
	PutIfMissing OpKind = 6
	// PutFor sets a key that expires after TTL.
	PutFor OpKind = 7
)

// Op is one operation of a transaction.
type Op struct {
	Kind     OpKind
	Key      string
	Revision uint64
	Delta    int64
	Least    int64
	// TTL is the time-to-live of a PutFor, from MinTTL to MaxTTL in whole milliseconds. Put,
	// PutIfMissing and an Add to an absent key may have one, too.
	TTL   time.Duration
	Value []byte
}

// Limits of a transaction.
const (
	MaxOps = 256
	MaxKey = 256
	// MaxTxn bounds the keys and values of one transaction together, in bytes.
	MaxTxn = 256 << 10

	// NoLeast is the Least of an Add without a bound.
	NoLeast = math.MinInt64

	// MinTTL is the shortest time-to-live that NATS supports.
	MinTTL = time.Second
	MaxTTL = 10 * 365 * 24 * time.Hour
)

var (
	errShort = errors.New("it ends in the middle of an operation")
	errOps   = fmt.Errorf("there are more than %d operations", MaxOps)
)

// DecodeTxn decodes a transaction in the guests' encoding: operations of
//
//	kind u8, key u32+bytes, revision, delta or milliseconds i64, value u32+bytes
//
// with little-endian numbers. The value of Add is its least sum, as a decimal
// number; an empty value means no bound. The operations' values are slices of data.
func DecodeTxn(data []byte) ([]Op, error) {
	var ops []Op
	for rest := data; len(rest) > 0; {
		op, after, err := decodeOp(rest)
		if err == nil && len(ops) == MaxOps {
			err = errOps
		}
		if err != nil {
			return nil, fmt.Errorf("transaction: operation %d: %w", len(ops), err)
		}
		ops, rest = append(ops, op), after
	}
	if err := checkTxn(ops); err != nil {
		return nil, fmt.Errorf("transaction: %w", err)
	}
	return ops, nil
}

func decodeOp(data []byte) (Op, []byte, error) {
	op := Op{Kind: OpKind(data[0])}
	key, rest, err := decodeBytes(data[1:])
	if err != nil {
		return Op{}, nil, err
	}
	if len(rest) < 8 {
		return Op{}, nil, errShort
	}
	number := binary.LittleEndian.Uint64(rest)
	value, rest, err := decodeBytes(rest[8:])
	if err != nil {
		return Op{}, nil, err
	}
	op.Key = string(key)
	switch op.Kind {
	case Put, PutIfMissing:
		op.Value = value
	case PutFor:
		op.Value = value
		op.TTL = time.Duration(min(number, uint64(MaxTTL/time.Millisecond)+1)) * time.Millisecond
	case Add:
		op.Delta = int64(number)
		op.Least, err = decodeLeast(value)
	case Revision:
		op.Revision = number
	case Delete, Missing:
	}
	return op, rest, err
}

func decodeBytes(data []byte) (value, rest []byte, err error) {
	if len(data) < 4 {
		return nil, nil, errShort
	}
	n := binary.LittleEndian.Uint32(data)
	data = data[4:]
	if uint64(n) > uint64(len(data)) {
		return nil, nil, errShort
	}
	return data[:n:n], data[n:], nil
}

func decodeLeast(value []byte) (int64, error) {
	if len(value) == 0 {
		return NoLeast, nil
	}
	least, err := strconv.ParseInt(string(value), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("least sum %.20q is no number", value)
	}
	return least, nil
}

// checkTxn returns an error for a transaction that no bucket can execute.
func checkTxn(ops []Op) error {
	if len(ops) > MaxOps {
		return errOps
	}
	size := 0
	for i, op := range ops {
		if op.Kind < Put || op.Kind > PutFor {
			return fmt.Errorf("operation %d: kind %d is unknown", i, op.Kind)
		}
		if err := checkKey(op.Key); err != nil {
			return fmt.Errorf("operation %d: %w", i, err)
		}
		if (op.Kind == PutFor || op.TTL != 0) && (op.TTL < MinTTL || op.TTL > MaxTTL) {
			return fmt.Errorf("operation %d: key %q for %v, want %v to %v", i, op.Key, op.TTL, MinTTL, MaxTTL)
		}
		size += len(op.Key) + len(op.Value)
	}
	if size > MaxTxn {
		return fmt.Errorf("its keys and values have %d bytes, at most %d: divide them between several transactions", size, MaxTxn)
	}
	return nil
}

// cloneOps copies the operations, which the owner may read after the caller has returned.
func cloneOps(ops []Op) []Op {
	ops = slices.Clone(ops)
	for i := range ops {
		ops[i].Value = bytes.Clone(ops[i].Value)
	}
	return ops
}

// checkKey returns an error unless key is one of NATS: letters, digits and -/_=. with no dot
// at either end and no two dots in a row.
func checkKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("a key of %d bytes, want 1 to %d", len(key), MaxKey)
	}
	if key[0] == '.' || key[len(key)-1] == '.' || strings.Contains(key, "..") {
		return fmt.Errorf("key %q: dots must be between words", key)
	}
	for i := range len(key) {
		if c := key[i]; !letter(c) && strings.IndexByte("-/_=.", c) < 0 {
			return fmt.Errorf("key %q: it may have letters, digits and -/_=. only", key)
		}
	}
	return nil
}

func letter(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
}
