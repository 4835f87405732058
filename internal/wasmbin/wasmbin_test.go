package wasmbin

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	file := AppendSection([]byte(Preamble), SectionType, []byte{1, TypeFunction, 0, 0})
	file = AppendSection(file, SectionCustom, AppendName(nil, "x"))
	file = AppendSection(file, SectionFunction, []byte{1, 0})
	got, err := Split(file)
	if err != nil {
		t.Fatal(err)
	}
	want := []Section{{SectionType, []byte{1, TypeFunction, 0, 0}}, {SectionCustom, []byte{1, 'x'}}, {SectionFunction, []byte{1, 0}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSplitErrors(t *testing.T) {
	for name, test := range map[string]struct{ file, want string }{
		"nothing":      {"", "not a WebAssembly module"},
		"component":    {"\x00asm\x0d\x00\x01\x00", "a component"},
		"version":      {"\x00asm\x02\x00\x00\x00", "version 02000000"},
		"too long":     {Preamble + "\x01\x02\x00", "section 1 at byte 8: ends too early"},
		"without size": {Preamble + "\x01", "section 1 at byte 8: ends too early"},
		"unknown":      {Preamble + "\x0e\x00", "section 14 at byte 8 is unknown or out of order"},
		"order":        {Preamble + "\x03\x00\x01\x00", "section 1 at byte 10 is unknown or out of order"},
		"twice":        {Preamble + "\x01\x00\x01\x00", "section 1 at byte 10 is unknown or out of order"},
		"long size":    {Preamble + "\x01\xff\xff\xff\xff\x7f", "does not fit in 32 bits"},
	} {
		if _, err := Split([]byte(test.file)); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		u, s := rapid.Uint32().Draw(t, "unsigned"), rapid.Int64().Draw(t, "signed")
		b := AppendSigned(AppendU32(nil, u), s)
		b = append(b, make([]byte, PaddedSize)...)
		PutPaddedU32(b[len(b)-PaddedSize:], u)
		r := Reader{Data: b}
		if gotU, gotS, padded := r.U32(), r.Signed(64), r.U32(); gotU != u || gotS != s || padded != u || r.Err != nil || r.Left() != 0 {
			t.Errorf("%d, %d and %d became %d, %d and %d: %v", u, s, u, gotU, gotS, padded, r.Err)
		}
	})
}

func TestNumbersOutOfRange(t *testing.T) {
	long := bytes.Repeat([]byte{0x80}, 12)
	for name, read := range map[string]func(r *Reader){
		"unsigned": func(r *Reader) { r.U32() }, "signed 32": func(r *Reader) { r.Signed(32) },
		"signed 33": func(r *Reader) { r.Signed(33) }, "signed 64": func(r *Reader) { r.Signed(64) },
	} {
		r := &Reader{Data: long}
		if read(r); r.Err == nil || !strings.Contains(r.Err.Error(), "does not fit") {
			t.Errorf("%s: got %v", name, r.Err)
		}
	}
	r := &Reader{Data: AppendSigned(nil, math.MaxInt32+1)}
	if r.Signed(32); r.Err == nil {
		t.Error("2^31 was read as a number of 32 bits")
	}
}

func TestReaderErrors(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		read func(r *Reader)
		want string
	}{
		"byte":       {"", func(r *Reader) { r.Byte() }, "ends too early"},
		"bytes":      {"abc", func(r *Reader) { r.Bytes(4) }, "ends too early"},
		"negative":   {"abc", func(r *Reader) { r.Bytes(-1) }, "ends too early"},
		"count":      {"\x03ab", func(r *Reader) { r.Count(1) }, "list of 3 elements: ends too early"},
		"name":       {"\x01\xff", func(r *Reader) { r.Name() }, "is not UTF-8"},
		"index":      {"\x05", func(r *Reader) { r.Index("global", 5) }, "global 5 of 5"},
		"value type": {"\x01", func(r *Reader) { r.ValueType() }, "value type 0x01"},
		"first":      {"", func(r *Reader) { r.Byte(); r.Failf("second") }, "ends too early"},
	} {
		r := &Reader{Data: []byte(test.data)}
		if test.read(r); r.Err == nil || !strings.Contains(r.Err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, r.Err, test.want)
		}
	}
}

func TestLocals(t *testing.T) {
	r := &Reader{Data: []byte{2, 0xff, 0xff, 0xff, 0xff, 0x0f, TypeI32, 3, TypeRef, 0x10}}
	if got, want := r.Locals(), (Locals{Groups: 2, At: 1, Count: math.MaxUint32 + 3}); got != want || r.Err != nil || r.Left() != 0 {
		t.Errorf("got %+v, %v, want %+v", got, r.Err, want)
	}
}

// TestInstructions reads one instruction of each kind of immediates.
func TestInstructions(t *testing.T) {
	for _, code := range []string{
		"\x00", "\x02\x40", "\x03\x7f", "\x04\x64\x10", "\x05", "\x0b", "\x0c\x05", "\x0e\x02\x00\x01\x02", "\x10\x85\x01", "\x11\x01\x00",
		"\x14\x01", "\x1c\x01\x7f", "\x1f\x40\x02\x00\x01\x02\x02\x03", "\x20\x01", "\x23\x01", "\x28\x02\x90\x01", "\x3f\x00", "\x41\x7f",
		"\x42\x80\x80\x80\x80\x80\x80\x80\x80\x80\x7f", "\x43abcd", "\x44abcdefgh", "\x6a", "\xd0\x70", "\xd2\x01", "\xfc\x00", "\xfc\x08\x01\x00",
		"\xfc\x0a\x00\x00", "\xfc\x0b\x00", "\xfc\x0c\x01\x02", "\xfc\x10\x00", "\xfd\x00\x00\x00", "\xfd\x0cabcdefghijklmnop", "\xfd\x15\x00",
		"\xfd\x54\x00\x00\x00", "\xfd\xae\x01", "\xfe\x03\x00", "\xfe\x10\x02\x00",
	} {
		r := &Reader{Data: []byte(code)}
		if i := r.Instruction(); r.Err != nil || i.At != 0 || i.End != len(code) || i.Op != code[0] {
			t.Errorf("%x: got %+v, %v", code, i, r.Err)
		}
		for cut := range len(code) {
			r := &Reader{Data: []byte(code[:cut])}
			if r.Instruction(); r.Err == nil {
				t.Errorf("%x was read", code[:cut])
			}
		}
	}
}

func TestInstructionErrors(t *testing.T) {
	for code, want := range map[string]string{
		"\xff":                     "opcode 0xff is of no feature",
		"\xfb\x00":                 "opcode 0xfb is of no feature",
		"\xfc\xff\x01":             "opcode 0xfcff",
		"\xfd\x80\x02":             "opcode 0xfd100",
		"\x3f\x01":                 "several memories",
		"\x28\x40\x00\x00":         "several memories",
		"\x1f\x40\x01\x04\x00\x00": "catch clause of kind 4",
	} {
		r := &Reader{Data: []byte(code)}
		if r.Instruction(); r.Err == nil || !strings.Contains(r.Err.Error(), want) {
			t.Errorf("%x: got %v, want %q", code, r.Err, want)
		}
	}
}

func TestEachLabel(t *testing.T) {
	for code, want := range map[string][]uint32{
		"\x0c\x05":                         {5},
		"\x0e\x02\x00\x01\x02":             {0, 1, 2},
		"\x1f\x40\x02\x00\x01\x02\x02\x03": {2, 3},
		"\x10\x05":                         nil,
	} {
		r := &Reader{Data: []byte(code)}
		var got []uint32
		r.Instruction().EachLabel(r.Data, func(label uint32) { got = append(got, label) })
		if !slices.Equal(got, want) {
			t.Errorf("%x: got %v, want %v", code, got, want)
		}
	}
}
