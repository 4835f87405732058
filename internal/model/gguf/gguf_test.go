package gguf_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/model/gguf"
)

func small() *gguf.Builder {
	return gguf.Random(gguf.Shape{Layers: 2, Width: 32, FeedForward: 64, Heads: 4, SharedHeads: 2, Context: 128, Type: gguf.Q8_0, Words: []string{"the"}, ChatTemplate: "{{ messages }}"}, 1)
}

func encode(t testing.TB, b *gguf.Builder) []byte {
	t.Helper()
	var out bytes.Buffer
	if _, err := b.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestReadReturnsWhatWasWritten(t *testing.T) {
	f, err := gguf.Read(bytes.NewReader(encode(t, small())), gguf.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	if f.Architecture() != "llama" || f.Text("tokenizer.chat_template") != "{{ messages }}" {
		t.Errorf("architecture %q, template %q", f.Architecture(), f.Text("tokenizer.chat_template"))
	}
	if n, ok := f.Of("context_length"); n != 128 || !ok {
		t.Errorf("context_length = %d, %v", n, ok)
	}
	if got, want := len(f.Tensors), 2*9+3; got != want {
		t.Errorf("%d tensors, want %d", got, want)
	}
	if got, want := f.StateBytes(), int64(2*2*(8+8)*2); got != want {
		t.Errorf("StateBytes = %d, want %d", got, want)
	}
	if got := f.Quantization(); got != "Q8_0" {
		t.Errorf("Quantization = %q", got)
	}
	tokens, _ := f.Lookup("tokenizer.ggml.tokens").([]string)
	if len(tokens) != 3+256+1 || tokens[259] != "the" {
		t.Errorf("%d tokens", len(tokens))
	}
	f, err = gguf.Read(bytes.NewReader(encode(t, small())), gguf.Limits{Array: 100})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(gguf.ArrayHeader{Kind: gguf.String, Length: 260}, f.Lookup("tokenizer.ggml.tokens")); diff != "" {
		t.Error(diff)
	}
}

func TestBadFilesAreNamed(t *testing.T) {
	good := encode(t, small())
	header, err := gguf.Read(bytes.NewReader(good), gguf.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	number := func(at int, n uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[at:], n)
		return b
	}
	for name, c := range map[string]struct {
		file []byte
		want string
	}{
		"no GGUF":        {[]byte("PK\x03\x04 and so on"), "not a GGUF file"},
		"empty":          {nil, "not a GGUF file"},
		"version":        {append([]byte("GGUF\x01\x00\x00\x00"), good[8:]...), "version 1 is not known"},
		"tensors":        {number(8, 1<<40), "at most 65536"},
		"cut header":     {good[:600], "in the middle of"},
		"cut data":       {good[:len(good)-64], "the file is cut off"},
		"long string":    {number(24, 1<<50), "longer than 65535"},
		"misaligned":     {misaligned(good, header), "no multiple of 32"},
		"duplicate name": {bytes.ReplaceAll(good, []byte("blk.1."), []byte("blk.0.")), "is there twice"},
	} {
		path := filepath.Join(t.TempDir(), "m.gguf")
		if err := os.WriteFile(path, c.file, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := gguf.Open(path, gguf.Limits{}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	if _, err := gguf.Read(strings.NewReader("PK\x03\x04"), gguf.Limits{}); !errors.Is(err, gguf.ErrNotGGUF) {
		t.Errorf("error %v is not ErrNotGGUF", err)
	}
}

// misaligned returns the file with the offset of its second tensor changed by one.
func misaligned(file []byte, header *gguf.File) []byte {
	out := bytes.Clone(file)
	second := header.Tensors[1]
	at := bytes.Index(out, []byte(second.Name)) + len(second.Name) + 4 + 8*len(second.Dimensions) + 4
	binary.LittleEndian.PutUint64(out[at:], second.Offset+1)
	return out
}

func TestBigramCountsPairs(t *testing.T) {
	m := gguf.CountBigram("abab", 16, "")
	if string(m.Letters) != "ab" {
		t.Fatalf("letters %q", m.Letters)
	}
	// After a comes b twice; after b comes a once and the end once.
	total := 2 + 5*1e-3
	if got, want := m.Probability[3][4], (2+1e-3)/total; math.Abs(got-want) > 1e-12 {
		t.Errorf("P(b|a) = %v, want %v", got, want)
	}
	if got, want := m.Probability[4][gguf.End], (1+1e-3)/total; math.Abs(got-want) > 1e-12 {
		t.Errorf("P(end|b) = %v, want %v", got, want)
	}
	if _, err := gguf.Read(bytes.NewReader(encode(t, m.Builder())), gguf.Limits{}); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add(encode(f, small()))
	f.Add(encode(f, gguf.CountBigram("abab", 16, "").Builder()))
	f.Add([]byte("GGUF\x03\x00\x00\x00"))
	// Metadata whose name is long, and of an unknown kind.
	long := binary.LittleEndian.AppendUint64([]byte("GGUF\x03\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"), 60_000)
	f.Add(append(append(long, make([]byte, 60_000)...), 99, 0, 0, 0))
	f.Fuzz(func(t *testing.T, data []byte) {
		header, err := gguf.Read(bytes.NewReader(data), gguf.Limits{Header: 1 << 20})
		if err != nil {
			if len(err.Error()) > 2000 { // names may have 64 KiB
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if header.DataOffset%header.Alignment != 0 {
			t.Errorf("data at %d, alignment %d", header.DataOffset, header.Alignment)
		}
		header.Parameters()
		header.StateBytes()
	})
}
