package remote_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/fabric/remote"
)

// shouter answers in upper case.
type shouter struct{ cancelled chan struct{} }

func (sh shouter) Serve(s call.ServerStream) error {
	if s.Head().Name() == "Wait" {
		<-s.Context().Done()
		close(sh.cancelled)
		return s.Context().Err()
	}
	if err := s.SendHeader(metadata.MD{"method": {s.Head().Method}, "raw-bin": s.Head().Metadata["raw-bin"]}); err != nil {
		return err
	}
	s.SetTrailer(metadata.MD{"peer": {s.Head().Peer}})
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if err := s.Send(&call.Message{Data: []byte(strings.ToUpper(string(m.Data)))}); err != nil {
			return err
		}
	}
	if s.Head().Name() != "Fail" {
		return nil
	}
	st, err := status.New(codes.NotFound, "no such thing").WithDetails(&errdetails.ErrorInfo{Reason: "lost"})
	if err != nil {
		return err
	}
	return st.Err()
}

// recorder keeps what is written to and read from a connection.
type recorder struct {
	net.Conn
	mu          sync.Mutex
	wrote, read []byte
}

func (r *recorder) Write(p []byte) (int, error) {
	n, err := r.Conn.Write(p)
	r.mu.Lock()
	r.wrote = append(r.wrote, p[:n]...)
	r.mu.Unlock()
	return n, err
}

func (r *recorder) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	r.read = append(r.read, p[:n]...)
	r.mu.Unlock()
	return n, err
}

// TestRecordedConnection decodes calls of ours with the other implementation.
func TestRecordedConnection(t *testing.T) {
	a, b := net.Pipe()
	rec := &recorder{Conn: a}
	client := remote.New(framed.Client(rec, framed.Options{}), remote.Options{})
	server := remote.New(framed.Server(b, framed.Options{}), remote.Options{Handler: shouter{}, Peer: "dinghy"})
	h := &call.Head{
		Method: "/test.Shout/Shout", Metadata: metadata.MD{"raw-bin": {"\x00\x01"}}, Priority: call.High,
		Attempt: 2, Encoding: "gzip", Subtype: "json", Deadline: time.Now().Add(time.Hour),
	}
	if _, _, err := client.Unary(t.Context(), h, &call.Message{Data: []byte("land")}); err != nil {
		t.Fatal(err)
	}
	stream(t, client)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		client.Close()
	}()
	server.Close()
	<-closed

	got, err := decodeCalls(rec.wrote, rec.read)
	if err != nil {
		t.Fatal(err)
	}
	want := []wireCall{
		{
			Head: wireHead{
				Priority: 1, Attempt: 2, Method: h.Method, Encoding: "gzip", Subtype: "json",
				Metadata: map[string][]string{"raw-bin": {"\x00\x01"}},
			},
			Requests: []string{"land"}, RequestsEnd: true,
			Header:    map[string][]string{"method": {h.Method}, "raw-bin": {"\x00\x01"}},
			Responses: []string{"LAND"}, Status: &wireStatus{Trailer: map[string][]string{"peer": {"dinghy"}}},
		},
		{
			Head:     wireHead{Streaming: true, Method: "/test.Shout/Fail", Metadata: map[string][]string{}},
			Requests: []string{"a", "", strings.Repeat("b", 100_000)}, RequestsEnd: true,
			Header:    map[string][]string{"method": {"/test.Shout/Fail"}},
			Responses: []string{"A", "", strings.Repeat("B", 100_000)},
			Status:    &wireStatus{Code: 5, Text: "no such thing", Trailer: map[string][]string{"peer": {"dinghy"}}},
		},
	}
	if len(got) != 2 || got[0].Head.Left == 0 || got[0].Head.Left > uint64(time.Hour) || got[1].Status == nil || !strings.Contains(got[1].Status.Details, "lost") {
		t.Fatalf("calls: %+v", got)
	}
	got[1].Status.Details = ""
	opts := cmp.Options{cmpopts.IgnoreFields(wireHead{}, "Left"), cmpopts.IgnoreUnexported(wireHead{})}
	if diff := cmp.Diff(got, want, opts); diff != "" {
		t.Error(diff)
	}
}

// stream makes a failing call of three messages.
func stream(t *testing.T, client *remote.Conn) {
	t.Helper()
	s, err := client.Open(t.Context(), &call.Head{Method: "/test.Shout/Fail", Streaming: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"a", "", strings.Repeat("b", 100_000)} {
		if err := s.Send(&call.Message{Data: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	_ = s.CloseSend()
	_, err = s.Recv()
	if st := status.Convert(err); st.Code() != codes.NotFound || len(st.Details()) != 1 {
		t.Errorf("ended with %v %v", err, st.Details())
	}
}

// TestForeignClient has the other implementation call ours.
func TestForeignClient(t *testing.T) {
	a, b := net.Pipe()
	h := shouter{cancelled: make(chan struct{})}
	server := remote.New(framed.Server(b, framed.Options{}), remote.Options{Handler: h, Peer: "dinghy"})
	defer server.Close()
	defer a.Close()
	// The server greets while we do.
	piped := struct {
		io.Reader
		io.Writer
	}{a, newAsync(t, a)}
	client, err := newWireClient(piped)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		method    string
		streaming bool
		requests  []string
		want      wireCall
	}{
		{"/s.S/Shout", false, []string{"ahoy"}, wireCall{Responses: []string{"AHOY"}, Status: &wireStatus{}}},
		{"/s.S/Shout", true, []string{"a", "", "c"}, wireCall{Responses: []string{"A", "", "C"}, Status: &wireStatus{}}},
		{"/s.S/Shout", true, []string{strings.Repeat("x", 200_000)}, wireCall{Responses: []string{strings.Repeat("X", 200_000)}, Status: &wireStatus{}}},
		{"/s.S/Fail", true, nil, wireCall{Status: &wireStatus{Code: 5, Text: "no such thing"}}},
	} {
		id, err := client.open(wireHead{Method: c.method, Streaming: c.streaming, metadataToEncode: []string{"raw-bin", "\xff"}}, c.requests, false)
		if err != nil {
			t.Fatal(err)
		}
		got, err := client.answer(id)
		if err != nil {
			t.Fatal(err)
		}
		c.want.Header = map[string][]string{"method": {c.method}, "raw-bin": {"\xff"}}
		c.want.Status.Trailer = map[string][]string{"peer": {"dinghy"}}
		got.Status.Details = ""
		if diff := cmp.Diff(got, c.want, cmpopts.IgnoreUnexported(wireHead{})); diff != "" {
			t.Error(diff)
		}
	}
	id, err := client.open(wireHead{Method: "/s.S/Wait", Streaming: true}, nil, true)
	if err == nil {
		err = client.cancel(id)
	}
	if err != nil {
		t.Fatal(err)
	}
	<-h.cancelled
}

// newAsync writes to w in a goroutine, as a socket's buffer would.
func newAsync(t *testing.T, w io.Writer) io.Writer {
	pieces := make(chan []byte, 1<<16)
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		for {
			select {
			case p := <-pieces:
				if _, err := w.Write(p); err != nil {
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { cancel(); writing.Wait() })
	return writerFunc(func(p []byte) (int, error) {
		pieces <- append([]byte(nil), p...)
		return len(p), nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
