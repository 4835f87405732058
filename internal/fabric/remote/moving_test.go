package remote_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
	"github.com/outboard-run/outboard/internal/fabric/transit"
)

// mover serves streams that can move: they echo, and say their header with the first
// message.
type mover struct {
	callees transit.Callees
	began   chan struct{}
	echoed  chan struct{}
}

func (m *mover) Serve(s call.ServerStream) error {
	return m.callees.Serve(s, func(s call.ServerStream) error {
		m.began <- struct{}{}
		for first := true; ; first = false {
			r, err := s.Recv()
			if errors.Is(err, io.EOF) {
				s.SetTrailer(metadata.MD{"last": {"word"}})
				return nil
			}
			if err != nil {
				return err
			}
			if first {
				if err := s.SendHeader(metadata.MD{"first": {"word"}}); err != nil {
					return err
				}
			}
			if err := s.Send(&call.Message{Data: r.Data}); err != nil {
				return err
			}
			m.echoed <- struct{}{}
		}
	})
}

// wireTo is a foreign client on a connection of its own, one with buffers: what is
// served before the client reads must not wait for it.
func wireTo(t *testing.T, h call.Handler) *wireClient {
	t.Helper()
	a, b := sockets(t)
	server := remote.New(framed.Server(b, framed.Options{}), remote.Options{Handler: h, Peer: "dinghy"})
	t.Cleanup(func() {
		_ = a.Close()
		_ = server.Close()
	})
	client, err := newWireClient(a)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// sockets are the two ends of a connection.
func sockets(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// lateHeader reads a header that came as a message.
func lateHeader(t *testing.T, b string) map[string][]string {
	t.Helper()
	all := map[string][]string{}
	text := func() string {
		n, used := binary.Uvarint([]byte(b))
		if used <= 0 || n > uint64(len(b)-used) {
			t.Fatalf("late header %q", b)
		}
		s := b[used : used+int(n)]
		b = b[used+int(n):]
		return s
	}
	for b != "" {
		key := text()
		all[key] = append(all[key], text())
	}
	return all
}

// A foreign client, written from the document, moves a stream to another connection,
// before and after the handler has said its header.
func TestForeignClientMovesStream(t *testing.T) {
	for name, early := range map[string]bool{"with a header": true, "without one": false} {
		t.Run(name, func(t *testing.T) {
			h := &mover{began: make(chan struct{}, 1), echoed: make(chan struct{}, 8)}
			old, next := wireTo(t, h), wireTo(t, h)
			const stream = "00112233445566778899aabbccddeeff-1"
			var before []string
			if early {
				before = []string{"a"}
			}
			first, err := old.open(wireHead{Method: "/s.S/Echo", Streaming: true, metadataToEncode: []string{"outboard-stream", stream + " 0"}}, before, true)
			if err != nil {
				t.Fatal(err)
			}
			<-h.began
			if early {
				<-h.echoed
			}
			moved := wireHead{Method: "/s.S/Echo", Streaming: true, metadataToEncode: []string{"outboard-stream", stream + " 1", "outboard-move", "on"}}
			second, err := next.open(moved, []string{"b", "c"}, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := next.first(second); err != nil { // the header: it is accepted
				t.Fatal(err)
			}
			if _, err := old.rw.Write(wireFrame{4, first, nil}.encode()); err != nil { // END
				t.Fatal(err)
			}
			left, err := old.answer(first)
			if err != nil {
				t.Fatal(err)
			}
			// Until the callee sends by the new leg, it does by the old one.
			wantResponses, gotResponses := slices.Concat(before, []string{"b", "c"}), left.Responses
			left.Responses = nil
			want := wireCall{Status: &wireStatus{Trailer: map[string][]string{"outboard-move": {"on"}}}}
			accepted, late := "late", map[string][]string{"first": {"word"}}
			if early {
				want.Header, accepted = late, "yes"
			}
			if diff := cmp.Diff(left, want, cmpopts.IgnoreUnexported(wireHead{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("old leg: %s", diff)
			}
			came, err := next.answer(second)
			if err != nil {
				t.Fatal(err)
			}
			if !early && len(came.Responses) > 0 {
				if diff := cmp.Diff(lateHeader(t, came.Responses[0]), late); diff != "" {
					t.Errorf("late header: %s", diff)
				}
				came.Responses = came.Responses[1:]
			}
			if diff := cmp.Diff(append(gotResponses, came.Responses...), wantResponses); diff != "" {
				t.Errorf("responses: %s", diff)
			}
			came.Responses = nil
			want = wireCall{
				Header: map[string][]string{"outboard-move": {accepted}},
				Status: &wireStatus{Trailer: map[string][]string{"last": {"word"}}},
			}
			if diff := cmp.Diff(came, want, cmpopts.IgnoreUnexported(wireHead{}), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("new leg: %s", diff)
			}
			refused(t, h, moved)
		})
	}
}

// refused moves a stream that is over.
func refused(t *testing.T, h call.Handler, head wireHead) {
	t.Helper()
	c := wireTo(t, h)
	id, err := c.open(head, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	got, err := c.answer(id)
	if got.Status == nil || got.Status.Code != 14 || got.Header != nil {
		t.Errorf("a stream that is not known: %+v, %v", got, err)
	}
}
