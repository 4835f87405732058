package remote

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

// handlers are both kinds.
func handlers() map[string]call.Handler {
	return map[string]call.Handler{"stream": &echo{}, "unary": &unaryEcho{}}
}

func head(name string) *call.Head {
	return &call.Head{Method: "/test.Echo/" + name, Metadata: metadata.MD{"asked": {"a", "b"}}}
}

func TestUnary(t *testing.T) {
	for name, h := range handlers() {
		t.Run(name, func(t *testing.T) {
			client, server := pair(t, true, Options{Handler: h}, Options{Handler: h})
			for _, c := range []*Conn{client, server} {
				for _, n := range []int{0, 1, 64, 4 << 10, 5 << 10, 100 << 10, 3 << 20} {
					data := make([]byte, n)
					for i := range data {
						data[i] = byte(i * 7)
					}
					m, end, err := c.Unary(t.Context(), head("Echo"), &call.Message{Data: bytes.Clone(data)})
					if err != nil {
						t.Fatalf("%d bytes: %v", n, err)
					}
					if !bytes.Equal(m.Data, data) {
						t.Errorf("%d bytes came back as %d", n, len(m.Data))
					}
					want := call.End{Header: metadata.MD{"seen": {"a", "b"}}, Trailer: metadata.MD{"trail-bin": {"\x00\xff"}}}
					if diff := cmp.Diff(end, want); diff != "" {
						t.Error(diff)
					}
				}
				_, _, err := c.Unary(t.Context(), head("Fail"), &call.Message{Data: []byte("x")})
				if status.Code(err) != codes.FailedPrecondition || status.Convert(err).Message() != "asked to fail" {
					t.Errorf("failing call: %v", err)
				}
			}
		})
	}
}

func TestStream(t *testing.T) {
	client, _ := pair(t, true, Options{}, Options{Handler: &echo{}})
	h := head("Echo")
	h.Streaming = true
	s, err := client.Open(t.Context(), h)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := range 2000 {
			if s.Send(&call.Message{Data: make([]byte, i), Compressed: i%2 == 1}) != nil {
				return
			}
		}
		_ = s.CloseSend()
	}()
	header, err := s.Header()
	if diff := cmp.Diff(header, metadata.MD{"seen": {"a", "b"}}); diff != "" || err != nil {
		t.Error(diff, err)
	}
	for i := range 2000 {
		m, err := s.Recv()
		if err != nil {
			t.Fatal(i, err)
		}
		if len(m.Data) != i || m.Compressed != (i%2 == 1) {
			t.Fatalf("message %d has %d bytes, compressed %t", i, len(m.Data), m.Compressed)
		}
		m.Free()
	}
	if _, err := s.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if diff := cmp.Diff(s.Trailer(), metadata.MD{"trail-bin": {"\x00\xff"}}); diff != "" {
		t.Error(diff)
	}
}

func TestCancelReachesTheHandler(t *testing.T) {
	e := &echo{began: make(chan string), ended: make(chan string)}
	client, _ := pair(t, true, Options{}, Options{Handler: e})
	for _, streaming := range []bool{false, true} {
		ctx, cancel := context.WithCancel(t.Context())
		h := head("Wait")
		h.Streaming = streaming
		result := make(chan error)
		go func() {
			if !streaming {
				_, _, err := client.Unary(ctx, h, &call.Message{})
				result <- err
				return
			}
			s, err := client.Open(ctx, h)
			if err == nil {
				_, err = s.Recv()
			}
			result <- err
		}()
		<-e.began
		cancel()
		<-e.ended
		if err := <-result; status.Code(err) != codes.Canceled {
			t.Errorf("streaming %t: %v", streaming, err)
		}
	}
}
