package gguf

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
)

// Limits bound the headers that Read accepts. The zero value is meant for untrusted files.
type Limits struct {
	// Header is the most bytes of a header, 256 MiB if it is 0.
	Header int64
	// Pairs and Tensors are the most pairs and tensors, 65,536 if they are 0.
	Pairs, Tensors uint64
	// Array is the most elements of an array that is kept, 4,096 if it is 0; longer arrays are
	// skipped.
	Array uint64
	// String is the longest string, in bytes, 16 MiB if it is 0: chat templates are the longest.
	String uint64
}

func (l *Limits) setDefaults() {
	l.Header = orElse(l.Header, 256<<20)
	l.Pairs = orElse(l.Pairs, 65536)
	l.Tensors = orElse(l.Tensors, 65536)
	l.Array = orElse(l.Array, 4096)
	l.String = orElse(l.String, 16<<20)
}

func orElse[T int64 | uint64](value, otherwise T) T {
	if value == 0 {
		return otherwise
	}
	return value
}

// ErrNotGGUF is returned for a file that does not begin with the format's magic number.
var ErrNotGGUF = errors.New("not a GGUF file")

const (
	magic            = "GGUF"
	defaultAlignment = 32
	maxAlignment     = 1 << 20
	maxDimensions    = 4
)

// Open reads the header of the file at path and checks that the file holds the data of all its
// tensors.
func Open(path string, limits Limits) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	header, err := Read(f, limits)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	return header, header.checkExtent(uint64(info.Size()))
}

// checkExtent returns an error if a tensor's data exceeds a file of size bytes.
func (f *File) checkExtent(size uint64) error {
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n, known := t.Bytes()
		if !known {
			continue // llama.cpp knows more types than this package
		}
		end := f.DataOffset + t.Offset
		if end < t.Offset || end+n < end || end+n > size {
			return fmt.Errorf("tensor %.100q: its data ends at byte %d of a file of %d: the file is cut off", t.Name, end+n, size)
		}
	}
	return nil
}

// Read reads a header. It reads ahead, so r's position is undefined afterwards.
func Read(r io.Reader, limits Limits) (*File, error) {
	limits.setDefaults()
	d := &decoder{in: bufio.NewReader(io.LimitReader(r, limits.Header)), limits: limits}
	f := d.file()
	if d.err == nil {
		return f, nil
	}
	if errors.Is(d.err, io.EOF) || errors.Is(d.err, io.ErrUnexpectedEOF) {
		d.err = fmt.Errorf("the header ends at byte %d, in the middle of %s", d.read, d.at)
	}
	if errors.Is(d.err, ErrNotGGUF) {
		return nil, d.err
	}
	return nil, fmt.Errorf("GGUF header: %w", d.err)
}

// A decoder reads a header; after the first error its methods return zero values.
type decoder struct {
	in     *bufio.Reader
	limits Limits
	read   uint64
	at     string
	err    error
	buf    [8]byte
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

func (d *decoder) file() *File {
	d.at = "the magic number"
	if string(d.bytes(4)) != magic {
		d.err = ErrNotGGUF
		return nil
	}
	f := &File{Version: d.uint32()}
	if d.err == nil && f.Version != 2 && f.Version != 3 {
		d.fail("version %d is not known: 2 and 3 are", f.Version)
	}
	tensors, pairs := d.uint64(), d.uint64()
	if tensors > d.limits.Tensors || pairs > d.limits.Pairs {
		d.fail("%d tensors and %d metadata pairs: at most %d and %d are read", tensors, pairs, d.limits.Tensors, d.limits.Pairs)
	}
	d.pairs(f, pairs)
	d.alignment(f)
	for i := uint64(0); i < tensors && d.err == nil; i++ {
		d.at = fmt.Sprintf("tensor %d", i)
		f.Tensors = append(f.Tensors, d.tensor(f.Alignment))
	}
	d.checkNames(f)
	f.DataOffset = (d.read + f.Alignment - 1) / f.Alignment * f.Alignment
	return f
}

func (d *decoder) pairs(f *File, n uint64) {
	seen := make(map[string]bool)
	for i := uint64(0); i < n && d.err == nil; i++ {
		d.at = fmt.Sprintf("metadata pair %d", i)
		key := d.text(65535)
		d.at = fmt.Sprintf("metadata %.100q", key)
		if seen[key] {
			d.fail("metadata %.100q is there twice", key)
		}
		seen[key] = true
		value := d.value(Kind(d.uint32()))
		if d.err == nil {
			f.Metadata = append(f.Metadata, Pair{key, value})
		}
	}
}

func (d *decoder) alignment(f *File) {
	f.Alignment = defaultAlignment
	if f.Lookup("general.alignment") == nil {
		return
	}
	n, ok := f.Number("general.alignment")
	if !ok || n == 0 || n > maxAlignment || n&(n-1) != 0 {
		d.fail("general.alignment is %v: it must be a power of 2 of at most %d", f.Lookup("general.alignment"), maxAlignment)
		return
	}
	f.Alignment = n
}

func (d *decoder) checkNames(f *File) {
	seen := make(map[string]bool, len(f.Tensors))
	for i := range f.Tensors {
		if name := f.Tensors[i].Name; seen[name] {
			d.fail("tensor %.100q is there twice", name)
		} else {
			seen[name] = true
		}
	}
}

func (d *decoder) tensor(alignment uint64) Tensor {
	t := Tensor{Name: d.text(1024)}
	n := d.uint32()
	if n > maxDimensions {
		d.fail("tensor %.100q has %d dimensions: at most %d are possible", t.Name, n, maxDimensions)
		return t
	}
	for range n {
		t.Dimensions = append(t.Dimensions, d.uint64())
	}
	t.Type, t.Offset = TensorType(d.uint32()), d.uint64()
	if _, ok := t.Elements(); !ok {
		d.fail("tensor %.100q: shape %v is too large", t.Name, t.Dimensions)
	}
	if t.Offset%alignment != 0 {
		d.fail("tensor %.100q: offset %d is no multiple of %d", t.Name, t.Offset, alignment)
	}
	return t
}

func (d *decoder) value(k Kind) any {
	switch k {
	case String:
		return d.text(d.limits.String)
	case Array:
		return d.array()
	default:
		return d.number(k)
	}
}

// number reads a value of constant size.
func (d *decoder) number(k Kind) any {
	if k.size() == 0 {
		d.fail("%s has a value of the unknown %v", d.at, k)
		return nil
	}
	b := d.bytes(k.size())
	if d.err != nil {
		return nil
	}
	return d.scalar(k, b)
}

func (d *decoder) scalar(k Kind, b []byte) any {
	le := binary.LittleEndian
	switch k {
	case Uint8:
		return b[0]
	case Int8:
		return int8(b[0])
	case Uint16:
		return le.Uint16(b)
	case Int16:
		return int16(le.Uint16(b))
	case Uint32:
		return le.Uint32(b)
	case Int32:
		return int32(le.Uint32(b))
	case Float32:
		return math.Float32frombits(le.Uint32(b))
	case Uint64:
		return le.Uint64(b)
	case Int64:
		return int64(le.Uint64(b))
	case Float64:
		return math.Float64frombits(le.Uint64(b))
	default:
		return b[0] != 0
	}
}

func (d *decoder) array() any {
	k, n := Kind(d.uint32()), d.uint64()
	if k == Array {
		d.fail("%s is an array of arrays", d.at)
		return nil
	}
	if k != String && k.size() == 0 {
		d.fail("%s is an array of the unknown %v", d.at, k)
		return nil
	}
	if n > uint64(d.limits.Header) {
		d.fail("%s has %d elements, more than the header may have bytes", d.at, n)
		return nil
	}
	if n > d.limits.Array {
		d.passOver(k, n)
		return ArrayHeader{k, n}
	}
	switch k {
	case String:
		return collect[string](d, k, n)
	case Uint32:
		return collect[uint32](d, k, n)
	case Int32:
		return collect[int32](d, k, n)
	case Float32:
		return collect[float32](d, k, n)
	case Bool:
		return collect[bool](d, k, n)
	default:
		d.passOver(k, n)
		return ArrayHeader{k, n}
	}
}

// collect reads n values of kind k, whose Go type is T.
func collect[T any](d *decoder, k Kind, n uint64) []T {
	var list []T
	for i := uint64(0); i < n && d.err == nil; i++ {
		if v, ok := d.value(k).(T); ok {
			list = append(list, v)
		}
	}
	return list
}

func (d *decoder) passOver(k Kind, n uint64) {
	if k != String {
		d.discard(n * uint64(k.size())) // n is at most the size of a header
		return
	}
	for i := uint64(0); i < n && d.err == nil; i++ {
		size := d.uint64()
		if size > d.limits.String {
			d.fail("%s: a string of %d bytes is longer than %d", d.at, size, d.limits.String)
		}
		d.discard(size)
	}
}

func (d *decoder) discard(n uint64) {
	if d.err != nil {
		return
	}
	done, err := io.CopyN(io.Discard, d.in, int64(n))
	d.read += uint64(done)
	d.err = err
}

func (d *decoder) text(most uint64) string {
	n := d.uint64()
	if n > most {
		d.fail("%s: a string of %d bytes is longer than %d", d.at, n, most)
	}
	if d.err != nil {
		return ""
	}
	// The length is unverified: memory grows only with the bytes that are read.
	b, err := io.ReadAll(io.LimitReader(d.in, int64(n)))
	d.read += uint64(len(b))
	if err == nil && uint64(len(b)) < n {
		err = io.ErrUnexpectedEOF
	}
	d.err = err
	return string(b)
}

func (d *decoder) bytes(n int) []byte {
	if d.err != nil {
		return nil
	}
	read, err := io.ReadFull(d.in, d.buf[:n])
	d.read += uint64(read)
	d.err = err
	return d.buf[:n]
}

func (d *decoder) uint32() uint32 {
	b := d.bytes(4)
	if d.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint32(b)
}

func (d *decoder) uint64() uint64 {
	b := d.bytes(8)
	if d.err != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b)
}
