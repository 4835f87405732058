package transit

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// A position that is parsed formats to the same text, or parses to the same position again.
func FuzzPlace(f *testing.F) {
	f.Add("00112233445566778899aabbccddeeff-1 0")
	f.Add("a 1.2.3")
	f.Add("a 1.2.3.4.5.6.7.8.9")
	f.Add(" 1")
	f.Add("a 4294967296")
	f.Fuzz(func(t *testing.T, text string) {
		p := parsePosition(metadata.MD{StreamKey: {text}})
		if p.name == "" {
			if p.path != nil {
				t.Errorf("%q: %+v", text, p)
			}
			return
		}
		if len(p.name) > maxName || len(p.path) == 0 || len(p.path) > maxPath {
			t.Errorf("%q: %+v", text, p)
		}
		if again := parsePosition(metadata.MD{StreamKey: {p.String()}}); !cmp.Equal(again, p, cmp.AllowUnexported(position{})) {
			t.Errorf("%q: %+v, and then %+v", text, p, again)
		}
	})
}

// A header that stands in a message is read as it was.
func FuzzHeader(f *testing.F) {
	f.Add(AppendHeader(metadata.MD{"a": {"1", ""}, "b-bin": {"\xff"}}).Data)
	f.Add([]byte{1})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		md, err := ParseHeader(&call.Message{Data: b})
		if err != nil {
			return
		}
		again, err := ParseHeader(AppendHeader(md))
		if diff := cmp.Diff(again, md); err != nil || diff != "" {
			t.Errorf("%v %s", err, diff)
		}
	})
}

// Places of the caller's moves are after those of everybody below.
func TestPlaces(t *testing.T) {
	order := [][]uint32{{0}, {0, 0}, {0, 0, 1}, {0, 1}, {0, 1, 0}, {0, 2}, {1}, {1, 0}, {2, 0}, {10}}
	for i, a := range order {
		for j, b := range order {
			if got := (position{path: a}).after(position{path: b}); got != (i > j) {
				t.Errorf("%v after %v: %v", a, b, got)
			}
		}
	}
}
