package host_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// A recorder is a tenant's process that closes the connections that it is passed, and counts.
type recorder struct {
	mute bool // it does not confirm that connections are closed

	mu     sync.Mutex
	conns  int
	closed []int // connections received before each request to close them

	restarted sync.WaitGroup // if it is mute
}

func (r *recorder) launch() host.Launcher {
	return launchFunc(func(ctx context.Context, node *ipc.Conn) error {
		if _, err := node.Receive(ctx); err != nil {
			return err
		}
		if r.mute {
			r.restarted.Done()
		}
		stop := context.AfterFunc(ctx, func() { _ = node.Close() })
		defer stop()
		if err := node.Send(tenant.TypeReady, tenant.Ready{PID: 1}); err != nil {
			return err
		}
		node.Serve(func(m *ipc.Message) { r.handle(node, m) })
		return nil
	})
}

func (r *recorder) handle(node *ipc.Conn, m *ipc.Message) {
	defer m.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	switch m.Type {
	case tenant.TypeConn:
		r.conns++
		if conn, err := ipc.NetConn(m.File()); err == nil {
			_ = conn.Close()
		}
	case tenant.TypeCloseConns:
		r.closed = append(r.closed, r.conns)
		if r.mute {
			return
		}
	}
	_ = node.Reply(m, nil, nil)
}

// accepted returns both ends of a connection, the second as a node accepts it.
func accepted(t testing.TB, l net.Listener) (client net.Conn, conn *net.TCPConn) {
	t.Helper()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	return client, far.(*net.TCPConn) //nolint:forcetypeassert // it is TCP
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestPassConn: many connections are passed at a time, and once a second tenant has a process
// the first one closes all that it was passed before.
func TestPassConn(t *testing.T) {
	const count = 100
	r := &recorder{}
	h, err := host.Open(t.Context(), host.Options{Dir: t.TempDir(), Launch: r.launch()})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Config(t.Context(), "tea"); err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	var passing sync.WaitGroup
	for range count {
		client, conn := accepted(t, l)
		passing.Go(func() {
			defer client.Close()
			if err := h.PassConn(t.Context(), "tea", conn); err != nil {
				t.Error(err)
			}
			if n, err := client.Read(make([]byte, 1)); err == nil {
				t.Errorf("read %d bytes, want the end of the connection", n)
			}
		})
	}
	passing.Wait()
	if _, err := h.Config(t.Context(), "coffee"); err != nil {
		t.Fatal(err)
	}
	r.mu.Lock()
	if r.conns != count || len(r.closed) != 1 || r.closed[0] != count {
		t.Errorf("%d connections came, and %v before the request to close them; want %d", r.conns, r.closed, count)
	}
	r.mu.Unlock()
	client, conn := accepted(t, l)
	defer client.Close()
	defer conn.Close()
	if err := h.PassConn(t.Context(), "tea", conn); !errors.Is(err, host.ErrShared) {
		t.Errorf("a connection beside a second tenant: %v, want ErrShared", err)
	}
}

// TestCloseConnsUnconfirmed: a process that does not confirm that it reads no more requests of
// another tenant is killed, and started again.
func TestCloseConnsUnconfirmed(t *testing.T) {
	r := &recorder{mute: true}
	r.restarted.Add(3) // the first tenant's process twice
	h, err := host.Open(t.Context(), host.Options{Dir: t.TempDir(), Launch: r.launch(), CloseTimeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range []string{"tea", "coffee"} {
		if _, err := h.Config(t.Context(), name); err != nil {
			t.Fatal(err)
		}
	}
	r.restarted.Wait()
}

// BenchmarkPassConn measures what it costs to pass a connection, beside one that is accepted and
// closed: in processor time of node and process together.
func BenchmarkPassConn(b *testing.B) {
	r := &recorder{}
	h, err := host.Open(b.Context(), host.Options{Dir: b.TempDir(), Launch: r.launch()})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	if _, err := h.Config(b.Context(), "tea"); err != nil {
		b.Fatal(err)
	}
	for name, end := range map[string]func(*net.TCPConn) error{
		"closed": (*net.TCPConn).Close,
		"passed": func(c *net.TCPConn) error { return h.PassConn(b.Context(), "tea", c) },
	} {
		b.Run(name, func(b *testing.B) {
			l, before, count := listen(b), processorTime(), 0
			for b.Loop() {
				client, conn := accepted(b, l)
				if err := end(conn); err != nil {
					b.Fatal(err)
				}
				_, _ = client.Read(make([]byte, 1)) // until the process has closed it
				_ = client.Close()
				count++
			}
			b.ReportMetric(float64(processorTime()-before)/1e3/float64(count), "cpu-us/op")
		})
	}
}

// processorTime is what this process has used, in nanoseconds.
func processorTime() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
