package grpcconn

import (
	"slices"
	"testing"
)

// appendFrame appends a frame with a payload of n bytes.
func appendFrame(b []byte, kind, flags byte, stream uint32, n int) []byte {
	b = append(b, byte(n>>16), byte(n>>8), byte(n), kind, flags, byte(stream>>24), byte(stream>>16), byte(stream>>8), byte(stream))
	return append(b, make([]byte, n)...)
}

// appendPadded appends a frame of n bytes of data, and padding.
func appendPadded(b []byte, stream uint32, n int, padding byte) []byte {
	begin := len(b) + frameHead
	b = appendFrame(b, frameData, flagPadded, stream, 1+n+int(padding))
	b[begin] = padding
	return b
}

// A frame is a framePart without its payload, which can't be compared.
type frame struct {
	kind, flags byte
	stream      uint32
	bytes       int
	first, last bool
}

// scanned are the frames of a connection, each as one part.
func scanned(s *frameScanner, chunks ...[]byte) (all []frame) {
	visit := func(p *framePart) bool {
		if p.first {
			all = append(all, frame{kind: p.kind, flags: p.flags, stream: p.stream, first: true})
		}
		if len(all) > 0 {
			last := &all[len(all)-1]
			last.bytes, last.last = last.bytes+p.bytes, p.last
		}
		return false
	}
	for _, b := range chunks {
		s.scan(b, visit)
	}
	return all
}

// Frames are the same however their bytes arrive.
func TestFrameScanner(t *testing.T) {
	b := []byte(Preface)
	b = appendFrame(b, 0x4, 0, 0, 12)
	b = appendFrame(b, frameHeaders, 0x4, 1, 40)
	b = appendFrame(b, frameData, flagEndStream, 1, 70_000)
	b = appendFrame(b, frameData, 0, 3|1<<31, 0)
	b = appendFrame(b, frameReset, 0, 1<<30+1, 4)
	b = appendPadded(b, 5, 1000, 200)
	b = appendPadded(b, 7, 0, 0)
	want := []frame{
		{kind: 0x4, bytes: 12, first: true, last: true},
		{kind: frameHeaders, flags: 0x4, stream: 1, bytes: 40, first: true, last: true},
		{kind: frameData, flags: flagEndStream, stream: 1, bytes: 70_000, first: true, last: true},
		{kind: frameData, stream: 3, first: true, last: true},
		{kind: frameReset, stream: 1<<30 + 1, bytes: 4, first: true, last: true},
		{kind: frameData, flags: flagPadded, stream: 5, bytes: 1000, first: true, last: true},
		{kind: frameData, flags: flagPadded, stream: 7, first: true, last: true},
	}
	for _, size := range []int{1, 2, 9, 10, 33, 4096, len(b)} {
		s := afterPreface()
		if got := scanned(&s, slices.Collect(slices.Chunk(b, size))...); !slices.Equal(got, want) {
			t.Errorf("chunks of %d bytes: %+v", size, got)
		}
	}
}

// A visitor that stops gets the rest with the next call.
func TestFrameScannerStops(t *testing.T) {
	b := appendFrame(appendFrame(nil, frameHeaders, 0, 1, 5), frameData, 0, 1, 7)
	var s frameScanner
	n := s.scan(b, func(p *framePart) bool { return p.kind == frameHeaders && p.last })
	if n != frameHead+5 {
		t.Fatalf("it scanned %d bytes", n)
	}
	if got := scanned(&s, b[n:]); len(got) != 1 || got[0].kind != frameData || got[0].bytes != 7 {
		t.Errorf("the rest is %+v", got)
	}
}
