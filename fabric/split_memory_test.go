//go:build linux

package fabric

import (
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/proto"
)

// twice is one piece of memory at two places.
func twice(t *testing.T, size int) (a, b []byte) {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		t.Fatal(err)
	}
	places := make([][]byte, 2)
	for i := range places {
		if places[i], err = unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = unix.Munmap(places[i]) })
	}
	return places[0], places[1]
}

// TestSplitOfBytesThatChange: whatever the sender does meanwhile, what is borrowed lies
// in the message.
func TestSplitOfBytesThatChange(t *testing.T) {
	whole, err := proto.Marshal(&testgrpc.SimpleRequest{ResponseSize: 7, Payload: payload(20 << 10), ExpectCompressed: &testgrpc.BoolValue{Value: true}})
	if err != nil {
		t.Fatal(err)
	}
	theirs, ours := twice(t, len(whole))
	copy(theirs, whole)
	var over atomic.Bool
	written := make(chan struct{})
	go func() {
		defer close(written)
		for r := rand.New(rand.NewPCG(1, 2)); !over.Load(); {
			theirs[r.IntN(24)] = byte(r.Uint32()) // tags and lengths
			if r.IntN(4) == 0 {
				copy(theirs[:24], whole)
			}
		}
	}()
	borrowed := 0
	// The writer may be delayed in the midst of a change, and nothing can be borrowed until it goes on.
	for begin := time.Now(); time.Since(begin) < 200*time.Millisecond || borrowed == 0 && time.Since(begin) < time.Minute; {
		got := new(testgrpc.SimpleRequest)
		s, ok := split(ours, got.ProtoReflect().Descriptor(), borrowable)
		if !ok || proto.Unmarshal(s.rest, got) != nil {
			continue
		}
		s.join(got.ProtoReflect())
		if body := got.GetPayload().GetBody(); len(body) > 0 {
			borrowed++
			if len(body) > len(ours) || !within(body, ours) || cap(body) != len(body) {
				t.Fatalf("%d bytes that are not the message's", len(body))
			}
			_ = body[len(body)-1]
		}
	}
	over.Store(true)
	<-written
	if borrowed == 0 {
		t.Error("nothing was borrowed")
	}
}
