package npy_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/npy"
)

// file returns a file of a version of the format with a header.
func file(version byte, header, data string) string {
	b := append([]byte("\x93NUMPY"), version, 0)
	if version == 1 {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(header)))
	} else {
		b = binary.LittleEndian.AppendUint32(b, uint32(len(header)))
	}
	return string(b) + header + data
}

const pair = "{'descr': '<i2', 'fortran_order': False, 'shape': (2,), }"

func TestRead(t *testing.T) {
	want := model.Tensor{Type: model.Int16, Shape: []int64{2}, Data: []byte("abcd")}
	for name, text := range map[string]string{
		"version 1":         file(1, pair, "abcd"),
		"version 2":         file(2, pair, "abcd"),
		"version 3":         file(3, pair, "abcd"),
		"native order":      file(1, strings.Replace(pair, "<", "=", 1), "abcd"),
		"Fortran's, a list": file(1, strings.Replace(pair, "False", "True", 1), "abcd"),
	} {
		got, err := npy.Read(strings.NewReader(text), 4)
		if diff := cmp.Diff(got, want); err != nil || diff != "" {
			t.Errorf("%s: %v, %s", name, err, diff)
		}
	}
}

// What was written is read again, for every data type that the format has.
func TestWrite(t *testing.T) {
	for kind := model.Bool; kind <= model.Bytes; kind++ {
		for _, shape := range [][]int64{{}, {3}, {2, 3}, {0}} {
			n, _ := model.Elements(shape)
			want := model.Tensor{Type: kind, Shape: shape, Data: bytes.Repeat([]byte{1}, n*kind.Size())}
			var out bytes.Buffer
			err := npy.Write(&out, &want)
			if kind == model.Bytes {
				if outboard.KindOf(err) != outboard.Invalid {
					t.Errorf("%v: %v", kind, err)
				}
				continue
			}
			if err != nil || (out.Len()-len(want.Data))%64 != 0 {
				t.Fatalf("%v %v: %v, %d bytes", kind, shape, err, out.Len())
			}
			got, err := npy.Read(&out, 1<<10)
			if err != nil || got.Type != kind || !cmp.Equal(got.Shape, shape) || !bytes.Equal(got.Data, want.Data) {
				t.Errorf("%v %v: got %+v, %v", kind, shape, got, err)
			}
		}
	}
}

func TestReadRefuses(t *testing.T) {
	header := func(old, with string) string { return file(1, strings.Replace(pair, old, with, 1), "abcd") }
	for name, text := range map[string]string{
		"no file":          "",
		"another format":   "PK\x03\x04",
		"version 4":        file(4, pair, "abcd"),
		"truncated header": file(1, pair, "")[:20],
		"huge header":      "\x93NUMPY\x02\x00\xff\xff\xff\xff",
		"truncated data":   file(1, pair, "abc"),
		"more data":        file(1, pair, "abcde"),
		"objects":          header("<i2", "|O"),
		"big-endian":       header("<i2", ">i2"),
		"records":          header("'<i2'", "[('a', '<i2')]"),
		"no shape":         header("shape", "form"),
		"huge shape":       header("2,", "4611686018427387904, 4"),
		"beyond the limit": header("2,", "1000,"),
		"Fortran's order":  file(1, "{'descr': '<i2', 'fortran_order': True, 'shape': (1, 2), }", "abcd"),
		"many dimensions":  header("2,", strings.Repeat("1, ", 40)),
	} {
		if _, err := npy.Read(strings.NewReader(text), 100); outboard.KindOf(err) != outboard.Invalid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is read has as many bytes as its shape says, at most the limit, and is written as it was.
func FuzzRead(f *testing.F) {
	f.Add([]byte(file(1, pair, "abcd")))
	f.Add([]byte(file(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", "abcdefgh")))
	f.Add([]byte(file(3, "{'descr': '|b1', 'fortran_order': True, 'shape': (), }", "a")))
	f.Fuzz(func(t *testing.T, text []byte) {
		const limit = 1 << 12
		got, err := npy.Read(bytes.NewReader(text), limit)
		if err != nil {
			return
		}
		n, ok := model.Elements(got.Shape)
		if !ok || len(got.Data) != n*got.Type.Size() || len(got.Data) > limit {
			t.Fatalf("%v %v with %d bytes", got.Type, got.Shape, len(got.Data))
		}
		var out bytes.Buffer
		if err := npy.Write(&out, &got); err != nil {
			t.Fatal(err)
		}
		again, err := npy.Read(&out, limit)
		if err != nil || !cmp.Equal(again.Shape, got.Shape) || again.Type != got.Type || !bytes.Equal(again.Data, got.Data) {
			t.Fatalf("%+v, %v, want %+v", again, err, got)
		}
	})
}
