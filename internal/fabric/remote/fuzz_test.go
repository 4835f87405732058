package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/framed"
)

func toString(b []byte) string { return string(b) }

func FuzzHead(f *testing.F) {
	now := time.Unix(1e9, 0)
	for _, h := range []call.Head{
		{Method: "/a.B/C"},
		{
			Method: "/a.B/C", Metadata: metadata.MD{"k": {"v", "w"}, "x-bin": {"\x00"}}, Tenant: "t", Peer: "p",
			Deadline: now.Add(time.Second), Encoding: "gzip", Subtype: "json", Priority: call.Low, Streaming: true, WaitForReady: true, Attempt: 3,
		},
	} {
		b, err := appendHead(nil, &h, now, true)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHead(b, now, toString)
		if err != nil {
			return
		}
		again, err := appendHead(nil, h, now, true)
		if len(again) > maxHead || err != nil && len(b) > maxHead {
			return // no frame carries it
		}
		if err != nil {
			t.Fatalf("%+v cannot be written: %v", h, err)
		}
		h2, err := parseHead(again, now, toString)
		if diff := cmp.Diff(h2, h); diff != "" || err != nil {
			t.Error(err, diff)
		}
	})
}

func FuzzStatus(f *testing.F) {
	detailed, _ := status.New(codes.NotFound, "gone").WithDetails(&errdetails.ErrorInfo{Reason: "why"})
	for _, err := range []error{nil, detailed.Err(), errors.New("any"), context.DeadlineExceeded} {
		f.Add(appendOutcome(nil, err, metadata.MD{"k": {"v"}}))
		f.Add(appendOutcome(nil, err, nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ended, trailer, err := parseStatus(b)
		if err != nil || len(b) > maxHead {
			return
		}
		sent := ended
		if errors.Is(ended, io.EOF) {
			sent = nil
		}
		again, trailer2, err := parseStatus(appendOutcome(nil, sent, trailer))
		if err != nil {
			t.Fatal(err)
		}
		if status.Code(again) != status.Code(ended) {
			t.Errorf("%v became %v", ended, again)
		}
		if len(status.Convert(ended).Message()) <= maxText && len(b) < maxHead/4 {
			a, b := status.Convert(again).Proto(), status.Convert(ended).Proto()
			a.ProtoReflect().SetUnknown(nil)
			b.ProtoReflect().SetUnknown(nil) // goes with details only
			if diff := cmp.Diff(a, b, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(trailer2, trailer); diff != "" {
				t.Error(diff)
			}
		}
	})
}

// frames wraps bytes of one stream in DATA frames of the given size.
func frames(stream uint32, b []byte, size int) (wire []byte) {
	for len(b) > 0 {
		n := min(len(b), size)
		wire = binary.LittleEndian.AppendUint32(wire, uint32(n)|2<<24)
		wire = append(binary.LittleEndian.AppendUint32(wire, stream), b[:n]...)
		b = b[n:]
	}
	return wire
}

func endFrame(stream uint32) []byte {
	return binary.LittleEndian.AppendUint32([]byte{0, 0, 0, 4}, stream)
}

func openFrame(stream uint32, head []byte) []byte {
	b := appendString(nil, callMethod)
	b = append(b, head...)
	wire := binary.LittleEndian.AppendUint32(nil, uint32(len(b))|1<<24)
	return append(binary.LittleEndian.AppendUint32(wire, stream), b...)
}

const greeting = "OBFABR\x00\x01"

// FuzzCallee has a caller send whatever records, in frames of any size.
func FuzzCallee(f *testing.F) {
	message := append(appendRecord(nil, recordMessage, 3), "abc"...)
	f.Add(message, 100, true)
	f.Add(append(message, message...), 3, false)
	f.Add(append(appendRecord(nil, recordCompressed, 0), appendRecord(nil, recordStatus, 14)...), 1, false)
	f.Add(appendRecord(nil, recordMessage, 1<<30), 5, true)
	f.Fuzz(func(t *testing.T, records []byte, size int, streaming bool) {
		head, _ := appendHead(nil, &call.Head{Method: "/a/Echo", Streaming: streaming}, time.Now(), false)
		size = min(max(size, 1), 1000)
		wire := append(openFrame(1, head), frames(1, records[:min(len(records), 100<<10)], size)...)
		feed(append(wire, endFrame(1)...))
	})
}

// FuzzHostileCaller has a caller send whatever frames.
func FuzzHostileCaller(f *testing.F) {
	head, _ := appendHead(nil, &call.Head{Method: "/a/Echo", Streaming: true}, time.Now(), false)
	message := append(appendRecord(nil, recordMessage, 3), "abc"...)
	f.Add(bytes.Join([][]byte{openFrame(1, head), frames(1, message, 9), endFrame(1)}, nil))
	f.Add(bytes.Join([][]byte{openFrame(1, head), openFrame(3, head[:5]), frames(1, message, 2)}, nil))
	f.Fuzz(func(_ *testing.T, wire []byte) { feed(wire) })
}

// feed gives a server bytes and hangs up; everything must end.
func feed(wire []byte) {
	a, b := net.Pipe()
	server := New(framed.Server(b, framed.Options{MaxStreams: 4}), Options{Handler: &unaryEcho{}, MaxMessage: 1 << 20})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.Copy(io.Discard, a) })
	_, _ = a.Write([]byte(greeting))
	_, _ = a.Write(wire)
	a.Close()
	<-server.Done()
	server.Close()
	wg.Wait()
}

// FuzzHostileCallee has a callee answer whatever records.
func FuzzHostileCallee(f *testing.F) {
	ok := appendStatus(append(appendRecord(nil, recordMessage, 3), "abc"...), nil, metadata.MD{"k": {"v"}})
	f.Add(ok, 100)
	header, _ := appendHeader(nil, metadata.MD{"k": {"v"}})
	f.Add(append(header, ok...), 1)
	f.Add(append(ok, ok...), 7)
	f.Add(append(ok, header...), 7)
	f.Fuzz(func(t *testing.T, records []byte, size int) {
		size = min(max(size, 1), 1000)
		records = records[:min(len(records), 50<<10)]
		a, b := net.Pipe()
		client := New(framed.Client(a, framed.Options{}), Options{MaxMessage: 1 << 20})
		var wg sync.WaitGroup
		opened := make(chan struct{})
		wg.Go(func() { discard(b, 2, opened) })
		wg.Go(func() {
			m, _, err := client.Unary(context.Background(), head("Echo"), &call.Message{Data: []byte("x")})
			if err == nil && m == nil {
				t.Error("neither a message nor an error")
			}
		})
		s, err := client.Open(context.Background(), &call.Head{Method: "/a/Echo", Streaming: true})
		if err != nil {
			t.Fatal(err)
		}
		wg.Go(func() {
			_, _ = s.Header()
			for err == nil {
				_, err = s.Recv()
			}
		})
		<-opened
		wire := []byte(greeting)
		for _, id := range []uint32{1, 3} {
			wire = append(append(wire, frames(id, records, size)...), endFrame(id)...)
		}
		_, _ = b.Write(wire)
		b.Close()
		<-client.Done()
		client.Close()
		wg.Wait()
	})
}

// discard reads all, and closes opened after n OPEN frames.
func discard(r io.Reader, n int, opened chan struct{}) {
	h := make([]byte, 8)
	_, err := io.ReadFull(r, h) // the greeting
	for err == nil {
		if _, err = io.ReadFull(r, h); err != nil {
			break
		}
		if h[3] == 1 {
			if n--; n == 0 {
				close(opened)
			}
		}
		_, err = io.CopyN(io.Discard, r, int64(binary.LittleEndian.Uint32(h)&0xffffff))
	}
	if n > 0 {
		close(opened)
	}
}
