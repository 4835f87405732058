package host

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/tenant"
)

// serveHTTP serves requests on a unix socket until the test ends.
func serveHTTP(t *testing.T, path string, handler http.HandlerFunc) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: handler}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-done
	})
}

// A guest that has taken over the process of its tenant replaces the process's sockets by links to a
// socket of the node. The node does not send its own requests there.
func TestLinkedSockets(t *testing.T) {
	dir, err := os.MkdirTemp("", "host") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	var requests atomic.Int32
	serveHTTP(t, filepath.Join(dir, "outboard.sock"), func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		_, _ = io.WriteString(w, "{}")
	})
	b := newBrokenOut(t)
	h, err := Open(t.Context(), Options{Dir: filepath.Join(dir, "tenants"), Launch: b.launch})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	defer close(b.letGo)
	c, err := h.Config(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{c.ControlSocket(), c.RequestsSocket()} {
		if err := os.Symlink(filepath.Join(dir, "outboard.sock"), path); err != nil {
			t.Fatal(err)
		}
	}
	if err := h.Get(t.Context(), "shop", "/metrics", new(map[string]any)); outboard.KindOf(err) != outboard.Denied {
		t.Errorf("a request for the control socket ends with %v", err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://tenant/shop", nil)
	if err != nil {
		t.Fatal(err)
	}
	if response, err := h.Forward("shop").RoundTrip(request); err == nil {
		_ = response.Body.Close()
		t.Error("a client's request was forwarded")
	}
	if n := requests.Load(); n != 0 {
		t.Errorf("the node's socket got %d requests", n)
	}
}

// connectReady connects a tenant's process with a number to its node, receives its configuration and
// reports that it is ready.
func connectReady(ctx context.Context, socket *os.File, pid int) (*ipc.Conn, error) {
	node, err := ipc.FromFile(socket, ipc.Options{})
	if err != nil {
		return nil, err
	}
	if _, err = node.Receive(ctx); err == nil {
		err = node.Send(tenant.TypeReady, tenant.Ready{PID: pid})
	}
	if err != nil {
		return nil, errors.Join(err, node.Close())
	}
	return node, nil
}

// A process that a guest has taken over answers the node's requests without end.
func TestAnswersAreBounded(t *testing.T) {
	dir, err := os.MkdirTemp("", "host") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	launch := helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		node, err := connectReady(ctx, socket, 0)
		if err != nil {
			return err
		}
		defer node.Close()
		node.Serve((*ipc.Message).Close)
		return nil
	})
	h, err := Open(t.Context(), Options{Dir: dir, Launch: func(socket *os.File) (Launched, error) { return launch("", socket) }})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	c, err := h.Config(t.Context(), "shop")
	if err != nil {
		t.Fatal(err)
	}
	line := strings.Repeat("# comment\n", 1<<10)
	serveHTTP(t, c.ControlSocket(), func(w http.ResponseWriter, r *http.Request) {
		begin, end, fill := `{"a":"`, `"}`, strings.Repeat("x", len(line))
		if r.URL.Path == "/metrics" {
			begin, end, fill = "", "a 1\n", line
		}
		_, _ = io.WriteString(w, begin)
		for n := 0; n < maxAnswer; n += len(fill) {
			if _, err := io.WriteString(w, fill); err != nil {
				return
			}
		}
		_, _ = io.WriteString(w, end)
	})
	var answer map[string]string
	if err := h.Get(t.Context(), "shop", "/v1/apps", &answer); err == nil || len(answer["a"]) > 0 {
		t.Errorf("an answer of %d bytes was read: %v", len(answer["a"]), err)
	}
	if families, err := h.Gather(); err != nil || len(families) != 0 {
		t.Errorf("metrics of more than %d bytes were read: %v, %v", maxMetrics, families, err)
	}
}
