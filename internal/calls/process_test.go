package calls

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/ipc"
)

// start runs a process until the test ends, and returns the node's end of its connection.
func start(t *testing.T, opts ProcessOptions) (*ipc.Conn, <-chan error) {
	t.Helper()
	node, far, err := ipc.Pair(ipc.Options{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), far, opts) }()
	var serving sync.WaitGroup
	serving.Go(func() { node.Serve((*ipc.Message).Close) })
	t.Cleanup(func() {
		_ = node.Close()
		serving.Wait()
	})
	return node, done
}

// A node whose hand-over is another than the process's is told so.
func TestHandoverVersion(t *testing.T) {
	node, done := start(t, ProcessOptions{Version: "1.4"})
	if _, err := node.Call(t.Context(), msgServe, nil); outboard.KindOf(err) != outboard.Protocol {
		t.Errorf("serve before start: %v", err)
	}
	_, err := node.Call(t.Context(), msgStart, &body{Config: &Config{Handover: Handover + 1}})
	if outboard.KindOf(err) != outboard.Protocol || !strings.Contains(err.Error(), fmt.Sprintf("version %d", Handover+1)) || !strings.Contains(err.Error(), "1.4") {
		t.Errorf("start: %v", err)
	}
	_ = node.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The packets between a node and its process are those of the builds before internal/ipc.
func TestPacketsOfEarlierBuilds(t *testing.T) {
	a, b, err := packetPair()
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	done := make(chan error, 1)
	go func() { done <- Run(t.Context(), b, ProcessOptions{Version: "1.4"}) }()
	if _, err := a.WriteString(`{"type":"start","seq":7,"config":{"handover":9}}`); err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, 4096)
	n, err := a.Read(packet)
	const want = `{"type":"answer","seq":7,"error":"take over calls: the node hands over by version 9, 1.4 by version 3: restart the node to change to it","kind":`
	if err != nil || !strings.HasPrefix(string(packet[:n]), want) {
		t.Errorf("got %s, %v", packet[:n], err)
	}
	_ = a.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// packetPair returns the two ends of a connection of packets.
func packetPair() (a, b *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "a"), os.NewFile(uintptr(fds[1]), "b"), nil
}

// A draining listener returns only when every accepted connection is served.
func TestDrainableListener(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := newDrainableListener(l)
	visitor, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer visitor.Close()
	nc, err := d.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	drained := make(chan error, 1)
	go func() { drained <- d.drain() }()
	for refused := false; !refused; {
		late, err := net.Dial("tcp", l.Addr().String())
		if refused = err != nil; !refused {
			_ = late.Close()
		}
	}
	waiting := make(chan error, 1)
	go func() {
		_, err := d.Accept()
		waiting <- err
	}()
	for range 1000 {
		runtime.Gosched() // it would have time to return
	}
	select {
	case <-drained:
		t.Fatal("drain did not wait")
	default:
	}
	if err := nc.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if err := <-drained; err != nil {
		t.Error(err)
	}
	_ = d.Close()
	if err := <-waiting; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
}

func TestMerge(t *testing.T) {
	now := []client.Calls{{Service: "s", Method: "B", Rate: 5, P99: 2, InFlight: 1, Total: 10, Acted: map[string]uint64{"p": 1}}}
	before := []client.Calls{
		{Service: "s", Method: "A", InFlight: 2, Total: 7},
		{Service: "s", Method: "B", Rate: 1, P99: 9, InFlight: 3, Total: 20, Acted: map[string]uint64{"p": 2, "q": 1}},
	}
	want := []client.Calls{
		{Service: "s", Method: "A", InFlight: 2, Total: 7},
		{Service: "s", Method: "B", Rate: 6, P99: 2, InFlight: 4, Total: 30, Acted: map[string]uint64{"p": 3, "q": 1}},
	}
	if diff := cmp.Diff(want, mergeCalls(now, before)); diff != "" {
		t.Error(diff)
	}
}

// FuzzRequests sends a process what is no request, or half of one.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(`{"type":"answer","seq":1}`))
	f.Add([]byte(`{"type":"start","config":{"handover":2}}`))
	f.Add([]byte(`{"type":"peer","data":"AAAA"}`))
	f.Add([]byte("x"))
	f.Fuzz(func(t *testing.T, packet []byte) {
		if len(packet) == 0 || len(packet) > ipc.MaxPacket {
			return
		}
		a, b, err := packetPair()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- Run(ctx, b, ProcessOptions{}) }()
		_, _ = a.Write(packet)
		_ = a.Close()
		<-done
	})
}
