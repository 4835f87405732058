// Package npy reads and writes arrays in NumPy's file format (NEP 1, versions 1.0 to 3.0).
package npy

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/model"
)

const (
	magic     = "\x93NUMPY"
	maxHeader = 64 << 10
	maxRank   = 32
)

// types are the data types by NumPy's descriptions. BF16 has none; it is read and written as two
// raw bytes.
//
//nolint:gochecknoglobals // a table
var types = map[string]model.DataType{
	"|b1": model.Bool, "|u1": model.Uint8, "<u2": model.Uint16, "<u4": model.Uint32, "<u8": model.Uint64,
	"|i1": model.Int8, "<i2": model.Int16, "<i4": model.Int32, "<i8": model.Int64,
	"<f2": model.FP16, "<f4": model.FP32, "<f8": model.FP64, "<V2": model.BF16,
}

var (
	descrPattern   = lazyregexp.New(`'descr':\s*'([^']*)'`)
	fortranPattern = lazyregexp.New(`'fortran_order':\s*(True|False)`)
	shapePattern   = lazyregexp.New(`'shape':\s*\(([0-9, ]*)\)`)
)

func invalid(format string, args ...any) error {
	return outboard.Errorf(outboard.Invalid, "npy", format, args...)
}

// Read reads an array of at most limit bytes. The tensor's name is "".
func Read(r io.Reader, limit int64) (model.Tensor, error) {
	header, err := readHeader(r)
	if err != nil {
		return model.Tensor{}, err
	}
	t, err := parseHeader(header)
	if err != nil {
		return t, err
	}
	n, ok := model.Elements(t.Shape)
	size := int64(n) * int64(t.Type.Size())
	if !ok || size/int64(t.Type.Size()) != int64(n) || size > limit {
		return t, invalid("an array of %v %v is larger than the %d bytes that are allowed", t.Shape, t.Type, limit)
	}
	// The buffer grows as data arrive: a header may declare more than the file has.
	var data bytes.Buffer
	if _, err := io.Copy(&data, io.LimitReader(r, size+1)); err != nil {
		return t, err
	}
	if int64(data.Len()) != size {
		return t, invalid("an array of %v %v has %d bytes, the file has %d of them or more", t.Shape, t.Type, size, data.Len())
	}
	t.Data = data.Bytes()
	return t, nil
}

func readHeader(r io.Reader) (string, error) {
	head := make([]byte, len(magic)+2)
	if _, err := io.ReadFull(r, head); err != nil || string(head[:len(magic)]) != magic {
		return "", invalid("the file does not begin like one of NumPy's")
	}
	length := make([]byte, 4)
	if head[len(magic)] == 1 {
		length = length[:2]
	}
	if _, err := io.ReadFull(r, length); err != nil {
		return "", invalid("the header is truncated")
	}
	size := binary.LittleEndian.Uint32(append(length, 0, 0)[:4])
	if head[len(magic)] < 1 || head[len(magic)] > 3 || size > maxHeader {
		return "", invalid("version %d with a header of %d bytes", head[len(magic)], size)
	}
	header := make([]byte, size)
	if _, err := io.ReadFull(r, header); err != nil {
		return "", invalid("the header is truncated")
	}
	return string(header), nil
}

// parseHeader parses the header, a literal of Python.
func parseHeader(header string) (t model.Tensor, err error) {
	descr, fortran, shape := descrPattern.FindStringSubmatch(header), fortranPattern.FindStringSubmatch(header), shapePattern.FindStringSubmatch(header)
	if descr == nil || fortran == nil || shape == nil {
		return t, invalid("the header %.200q has no descr, fortran_order or shape", header)
	}
	name := descr[1]
	if strings.HasPrefix(name, "=") {
		name = "<" + name[1:]
	}
	var ok bool
	if t.Type, ok = types[name]; !ok {
		return t, invalid("data type %q: convert the array to little-endian numbers or booleans", descr[1])
	}
	t.Shape = []int64{}
	for part := range strings.SplitSeq(shape[1], ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		d, err := strconv.ParseInt(part, 10, 62)
		if err != nil || len(t.Shape) == maxRank {
			return t, invalid("shape (%s)", shape[1])
		}
		t.Shape = append(t.Shape, d)
	}
	if fortran[1] == "True" && len(t.Shape) > 1 {
		return t, invalid("the array is in Fortran's order: save numpy.ascontiguousarray of it")
	}
	return t, nil
}

// Write writes an array in version 1.0. Arrays of Bytes can't be written.
func Write(w io.Writer, t *model.Tensor) error {
	descr := ""
	for name, kind := range types {
		if kind == t.Type {
			descr = name
		}
	}
	if descr == "" {
		return invalid("%v elements have no place in the format: use JSON", t.Type)
	}
	var shape strings.Builder
	for _, d := range t.Shape {
		fmt.Fprintf(&shape, "%d, ", d)
	}
	text := strings.TrimSuffix(shape.String(), " ")
	if len(t.Shape) != 1 {
		text = strings.TrimSuffix(text, ",")
	}
	header := fmt.Sprintf("{'descr': '%s', 'fortran_order': False, 'shape': (%s), }", descr, text)
	const alignment = 64
	padding := alignment - (len(magic)+4+len(header)+1)%alignment
	header += strings.Repeat(" ", padding%alignment) + "\n"
	head := append([]byte(magic), 1, 0)
	head = binary.LittleEndian.AppendUint16(head, uint16(len(header)))
	if _, err := w.Write(append(head, header...)); err != nil {
		return err
	}
	_, err := w.Write(t.Data)
	return err
}
