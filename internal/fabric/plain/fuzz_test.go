package plain

import (
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// FuzzUnpack takes apart messages that somebody else has compressed.
func FuzzUnpack(f *testing.F) {
	var packed sliceWriter
	w, err := encoding.GetCompressor(gzip.Name).Compress(&packed)
	if err != nil {
		f.Fatal(err)
	}
	_, _ = w.Write(make([]byte, 5000))
	_ = w.Close()
	f.Add([]byte(packed), 5000)
	f.Add([]byte(packed), 4999)
	f.Add([]byte("no gzip"), 100)
	f.Fuzz(func(t *testing.T, data []byte, most int) {
		most = min(max(most, 0), 1<<20)
		freed := false
		m, err := unpack(&call.Message{Data: data, Compressed: true, Release: func() { freed = true }}, gzip.Name, most)
		if !freed {
			t.Error("the compressed message is not freed")
		}
		switch status.Code(err) {
		case codes.OK:
			if len(m.Data) > most || m.Compressed {
				t.Errorf("%d bytes, at most %d", len(m.Data), most)
			}
		case codes.Internal, codes.ResourceExhausted:
		default:
			t.Error(err)
		}
	})
}
