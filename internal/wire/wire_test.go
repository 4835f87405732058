package wire

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bytes := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")
		words := rapid.SliceOf(rapid.Uint64()).Draw(t, "words")
		halves := rapid.SliceOf(rapid.Uint32()).Draw(t, "halves")
		text, present := rapid.String().Draw(t, "text"), rapid.Bool().Draw(t, "present")
		number := rapid.Int32().Draw(t, "number")

		e := NewEncoder(nil)
		e.Bytes(bytes)
		e.I64(int64(number))
		e.Words(words)
		e.String(text, present)
		e.Halves(halves)
		if len(e.Body())%8 != 0 {
			t.Fatalf("body of %d bytes is no whole number of words", len(e.Body()))
		}

		d := NewDecoder(e.Body())
		gotBytes, gotNumber, gotWords := d.Bytes(), d.I32(), d.Words()
		gotText, gotPresent := d.String()
		gotHalves := d.Halves()
		if err := d.Done(); err != nil {
			t.Fatal(err)
		}
		if !present {
			text = ""
		}
		got := []any{gotBytes, gotNumber, gotWords, gotText, gotPresent, gotHalves}
		if diff := cmp.Diff([]any{bytes, number, words, text, present, halves}, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestAbsentIsNotEmpty(t *testing.T) {
	e := NewEncoder(nil)
	e.Bytes(nil)
	e.Bytes([]byte{})
	d := NewDecoder(e.Body())
	if got := d.Bytes(); got != nil {
		t.Errorf("absent array reads as %v", got)
	}
	if got := d.Bytes(); got == nil {
		t.Error("empty array reads as absent")
	}
}

func TestHostileBodies(t *testing.T) {
	huge := NewEncoder(nil)
	huge.U64(1 << 61) // times 8 it would overflow
	tests := map[string]func(*Decoder){
		"words":  func(d *Decoder) { d.Words() },
		"halves": func(d *Decoder) { d.Halves() },
		"bytes":  func(d *Decoder) { d.Bytes() },
	}
	for name, read := range tests {
		t.Run(name, func(t *testing.T) {
			d := NewDecoder(huge.Body())
			read(&d)
			if !errors.Is(d.Err(), ErrTruncated) {
				t.Errorf("got error %v, want %v", d.Err(), ErrTruncated)
			}
		})
	}
}

func TestWidths(t *testing.T) {
	e := NewEncoder(nil)
	e.U64(1 << 32)
	for name, read := range map[string]func(*Decoder){
		"u32": func(d *Decoder) { d.U32() },
		"i32": func(d *Decoder) { d.I32() },
	} {
		d := NewDecoder(e.Body())
		if read(&d); d.Err() == nil {
			t.Errorf("%s takes a number of 33 bits", name)
		}
	}
	d := NewDecoder(append(e.Body(), 0, 0, 0, 0, 0, 0, 0, 0))
	if d.U64(); d.Done() == nil {
		t.Error("bytes after the last field are accepted")
	}
}

func FuzzDecoder(f *testing.F) {
	e := NewEncoder(nil)
	e.Bytes([]byte("abc"))
	e.Words([]uint64{1, 2})
	f.Add(e.Body(), []byte{3, 4})
	f.Add([]byte{255, 255, 255, 255, 255, 255, 255, 31}, []byte{4, 4, 4})
	f.Fuzz(func(t *testing.T, body, plan []byte) {
		d := NewDecoder(body)
		for _, step := range plan {
			switch step % 6 {
			case 0:
				d.U64()
			case 1:
				d.U32()
			case 2:
				d.I32()
			case 3:
				d.Bytes()
			case 4:
				d.Words()
			case 5:
				d.Halves()
			}
		}
		_ = d.Done()
	})
}
