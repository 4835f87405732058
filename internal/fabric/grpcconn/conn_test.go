package grpcconn

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
)

func testOptions() *Options {
	return &Options{
		Budget: NewBudget(1<<20, 1<<19, func(held, all, each int64) error {
			return outboard.Errorf(outboard.Busy, "", "%d of %d are held, %d by one client", held, all, each)
		}),
		MaxCalls: 500, Timeout: time.Minute, Refuse: func(err error) error { return err },
	}
}

// connected returns a connection and its client, until the test ends. What the server sends is
// discarded, and only the test has the calls checked.
func connected(t *testing.T, o *Options) (*Conn, net.Conn) {
	t.Helper()
	client, server := net.Pipe()
	c := New(server, o)
	c.sweeping = true
	t.Cleanup(func() { _, _ = c.Close(), client.Close() })
	go func() { _, _ = io.Copy(io.Discard, client) }()
	return c, client
}

// A connection with too many unread responses ends.
func TestCallsOfAConnectionAreBounded(t *testing.T) {
	o := testOptions()
	var reasons []Reason
	o.Refused = func(reason Reason, _ error) { reasons = append(reasons, reason) }
	c, client := connected(t, o)
	sent := []byte(Preface)
	for i := range uint32(o.MaxCalls + 1) {
		sent = appendFrame(sent, frameHeaders, 0x4, 2*i+1, 1)
	}
	go func() { _, _ = client.Write(sent) }()
	_, err := io.Copy(io.Discard, c)
	if outboard.KindOf(err) != outboard.Busy {
		t.Errorf("it ends with %v", err)
	}
	if len(c.calls) != o.MaxCalls {
		t.Errorf("it has %d calls", len(c.calls))
	}
	if len(reasons) != 1 || reasons[0] != Calls {
		t.Errorf("the reasons are %v", reasons)
	}
	// The server may process the call too many before it sees the end of the connection.
	if _, err := c.Open(t.Context(), Client{Name: "client", Ended: func() { t.Error("another call has ended with it") }}); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("the call too many is opened: %v", err)
	}
	end := appendFrame(nil, frameHeaders, 0x4|flagEndStream, 1, 0)
	if _, err := c.Write(end); err != nil || len(c.calls) != o.MaxCalls-1 {
		t.Errorf("after a response it has %d calls, %v", len(c.calls), err)
	}
}

// openCall returns a call of a client that has sent its header fields.
func openCall(t *testing.T, c *Conn, stream uint32, client Client) *Call {
	t.Helper()
	c.in = frameScanner{}
	c.in.scan(appendFrame(nil, frameHeaders, 0x4, stream, 1), c.received)
	ctx, err := c.Open(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	call := callOf(ctx)
	if err := call.start(ctx); err != nil {
		t.Fatal(err)
	}
	return call
}

// Bytes count from their arrival until the handler has freed the message, and until the response is
// sent. What is left counts until the call is over.
func TestBytesOfACall(t *testing.T) {
	o := testOptions()
	c, _ := connected(t, o)
	ended := false
	call := openCall(t, c, 1, Client{Name: "client", Streams: true, Ended: func() { ended = true }})
	expect := func(when string, want int64) {
		t.Helper()
		if held := o.Budget.Held(); held != max(0, want-FreeBytes) {
			t.Errorf("%s: %d bytes are held, want %d without the first %d", when, held, want, FreeBytes)
		}
	}
	const wire, inflated = 100_000, 150_000
	c.in.scan(appendFrame(nil, frameData, 0, 1, messageHead+wire), c.received)
	expect("arrived", messageHead+wire)
	if err := call.deliver(wire, inflated); err != nil {
		t.Fatal(err)
	}
	expect("delivered", inflated)
	if err := call.beginSend(50_000); err != nil {
		t.Fatal(err)
	}
	expect("answered", inflated+50_000)
	call.free(inflated)
	expect("freed", 50_000)
	response := append([]byte{0, 0, 0, 0x9c, 0x40}, make([]byte, 40_000)...) // compressed
	frame := func(flags byte, payload []byte) []byte {
		f := appendFrame(nil, frameData, flags, 1, len(payload))
		copy(f[frameHead:], payload)
		return f
	}
	c.out.scan(frame(0, response[:3]), c.sent)
	c.out.scan(frame(0, response[3:30_000]), c.sent)
	expect("sent in part", 50_000)
	c.out.scan(frame(0, response[30_000:]), c.sent)
	expect("sent", 0)
	if err := errors.Join(call.deliver(0, 80_000), call.beginSend(1), call.beginSend(70_000)); err != nil {
		t.Fatal(err)
	}
	c.out.scan(appendFrame(nil, frameHeaders, flagEndStream, 1, 1), c.sent)
	expect("ended, with a handler", 150_001)
	if err := call.finish(); err != nil || !ended {
		t.Errorf("the call has ended: %v, %v", ended, err)
	}
	expect("over", 0)
	call.free(80_000)
	expect("freed late", 0)
}

// A client, and a connection, may hold only their shares; the others' calls go on.
func TestShares(t *testing.T) {
	o := testOptions()
	o.MaxBytes = 1 << 18
	call := func(client string) *Call {
		c, _ := connected(t, o)
		return openCall(t, c, 1, Client{Name: client, Streams: true})
	}
	full, second, third, other := call("a"), call("a"), call("a"), call("b")
	for _, attempt := range []struct {
		name    string
		call    *Call
		bytes   int64
		refused bool
	}{
		{"beyond the connection's share", full, 1<<18 + FreeBytes + 1, true},
		{"the connection's share", second, 1<<18 + FreeBytes, false},
		{"the client's share", third, 1 << 18, false},
		{"beyond the client's share", call("a"), 1 << 17, true},
		{"of another client", other, 1 << 18, false},
	} {
		if err := attempt.call.deliver(0, attempt.bytes); (err != nil) != attempt.refused {
			t.Errorf("%s: %v", attempt.name, err)
		}
	}
}

// sweepUntil sweeps a connection until f, and returns how often it did.
func sweepUntil(t *testing.T, c *Conn, f func() bool) int {
	t.Helper()
	for n := range 100 {
		if f() {
			return n
		}
		c.mu.Lock()
		c.sweepCalls()
		c.mu.Unlock()
	}
	t.Fatal("100 sweeps have not ended it")
	return 0
}

// A call whose message does not arrive ends; one whose handler does not wait for it, or whose message
// has not begun, goes on.
func TestSlowRequests(t *testing.T) {
	c, _ := connected(t, testOptions())
	call := openCall(t, c, 1, Client{Name: "a", Streams: true})
	waiting := openCall(t, c, 3, Client{Name: "a", Streams: true})
	unread := openCall(t, c, 5, Client{Name: "a", Streams: true})
	single := openCall(t, c, 7, Client{Name: "a"})
	call.awaitMessage()
	waiting.awaitMessage()
	for _, stream := range []uint32{1, 5} {
		c.in.scan(appendFrame(nil, frameData, 0, stream, 100), c.received)
	}
	n := sweepUntil(t, c, func() bool { return call.failed != nil && single.failed != nil })
	if n < sweeps || n > 2*sweeps || outboard.KindOf(call.failed) != outboard.Invalid {
		t.Errorf("it ends after %d sweeps with %v", n, call.failed)
	}
	if waiting.failed != nil || unread.failed != nil {
		t.Errorf("calls that the client does not delay end: %v, %v", waiting.failed, unread.failed)
	}
}

// A client that sends in time is not late, however long its message takes.
func TestRequestInTime(t *testing.T) {
	c, _ := connected(t, testOptions())
	call := openCall(t, c, 1, Client{Name: "a", Streams: true})
	call.awaitMessage()
	for range 20 * sweeps {
		c.in.scan(appendFrame(nil, frameData, 0, 1, 70_000), c.received) // 15 s at 4 KiB a second take 61,440
		c.mu.Lock()
		call.read = 1 // the bytes alone would exceed the share
		c.sweepCalls()
		c.mu.Unlock()
	}
	if call.failed != nil {
		t.Error(call.failed)
	}
}

// A client that does not read loses its call, and its connection once the handler has returned.
// Options.SpareReaders tolerates it until bytes are scarce.
func TestSlowReaders(t *testing.T) {
	o := testOptions()
	o.SpareReaders = true
	c, _ := connected(t, o)
	sending := openCall(t, c, 1, Client{Name: "a", Streams: true})
	handled := openCall(t, c, 3, Client{Name: "a"})
	_ = handled.finish()
	if err := sending.beginSend(FreeBytes); err != nil {
		t.Fatal(err)
	}
	for range 10 * sweeps {
		c.mu.Lock()
		c.sweepCalls()
		c.mu.Unlock()
	}
	if sending.failed != nil || c.failure() != nil {
		t.Fatalf("while nothing is scarce: %v, %v", sending.failed, c.failure())
	}
	if err := o.Budget.Reserve("a", 1<<18+1); err != nil {
		t.Fatal(err)
	}
	sweepUntil(t, c, func() bool { return sending.failed != nil && c.failure() != nil })
	for _, err := range []error{sending.failed, c.failure()} {
		if outboard.KindOf(err) != outboard.Busy {
			t.Errorf("it ends with %v", err)
		}
	}
}

// A Write that waits for its client for the whole timeout makes the calls late that are to be read.
func TestStalledWrite(t *testing.T) {
	client, server := net.Pipe()
	c := New(server, testOptions())
	written := make(chan struct{})
	go func() {
		defer close(written)
		_, _ = c.Write(appendFrame(nil, frameHeaders, 0, 1, 0)) // nobody reads
	}()
	for c.writes.Load() == 0 {
		time.Sleep(time.Millisecond)
	}
	n := sweepUntil(t, c, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.isStalled()
	})
	if n > sweeps {
		t.Errorf("it is stalled after %d sweeps", n)
	}
	_, _ = c.Close(), client.Close()
	<-written
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isStalled() {
		t.Error("it is stalled although the Write has ended")
	}
}
