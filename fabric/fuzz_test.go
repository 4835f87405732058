package fabric

import (
	"bytes"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// FuzzUnpack gives a server whatever a peer may send as a message. It is refused
// with a status, or it is a message within the limit that survives another trip.
func FuzzUnpack(f *testing.F) {
	plain := codecState{codec: codecFor(""), proto: true, server: true, maxReceive: 1000, maxSend: 1 << 20}
	packed := plain
	packed.encoding, packed.compressor = gzip.Name, encoding.GetCompressor(gzip.Name)
	for _, size := range []int{0, 10, 5000} {
		for _, form := range []codecState{plain, packed} {
			m, err := form.pack(&testgrpc.SimpleRequest{Payload: payload(size), ResponseSize: 7})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(bytes.Clone(m.Data), m.Compressed, form.encoding != "")
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, compressed, agreed bool) {
		form := plain
		if agreed {
			form = packed
		}
		released := false
		m := &call.Message{Data: data, Compressed: compressed, Release: func() { released = true }}
		got := new(testgrpc.SimpleRequest)
		err := form.unpack(m, got)
		if !released {
			t.Error("the message was not freed")
		}
		if err != nil {
			knownRefusal(t, err)
			return
		}
		survives(t, &form, got)
	})
}

func knownRefusal(t *testing.T, err error) {
	t.Helper()
	switch status.Code(err) {
	case codes.Internal, codes.ResourceExhausted, codes.Unimplemented:
	default:
		t.Errorf("got %v", err)
	}
}

// survives sends what was received.
func survives(t *testing.T, f *codecState, got *testgrpc.SimpleRequest) {
	t.Helper()
	m, err := f.pack(got)
	if err != nil {
		t.Fatal(err)
	}
	wide := *f
	wide.maxReceive = 1 << 20
	back := new(testgrpc.SimpleRequest)
	if err := wide.unpack(m, back); err != nil || !proto.Equal(got, back) {
		t.Errorf("got %v, %v, want %v", back, err, got)
	}
}

// FuzzMove moves a message and compares it with a copy.
func FuzzMove(f *testing.F) {
	for _, m := range []*testgrpc.StreamingOutputCallRequest{
		{}, {Payload: payload(3)}, {ResponseParameters: []*testgrpc.ResponseParameters{{Size: 1}, {IntervalUs: 2}}},
	} {
		data, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Add([]byte("\xf8\x07\x01")) // an unknown field
	f.Fuzz(func(t *testing.T, data []byte) {
		from := new(testgrpc.StreamingOutputCallRequest)
		if proto.Unmarshal(data, from) != nil {
			return
		}
		want := proto.Clone(from)
		to := &testgrpc.StreamingOutputCallRequest{ResponseStatus: &testgrpc.EchoStatus{Code: 1}}
		moveFields(from, to)
		if !proto.Equal(to, want) {
			t.Errorf("got %v, want %v", to, want)
		}
	})
}
