package node

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/tenant/host"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// tapped is a tenant's process that serves requests as a real one does, and keeps all bytes
// that it reads on connections of clients.
type tapped struct{ tenants *tappedTenants }

type tappedTenants struct {
	mu   sync.Mutex
	read map[string]*strings.Builder
}

func (s *tappedTenants) of(tenant string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read[tenant] == nil {
		return ""
	}
	return s.read[tenant].String()
}

// tap is a connection whose bytes are kept.
type tap struct {
	net.Conn
	tenant  string
	tenants *tappedTenants
}

func (c *tap) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.tenants.mu.Lock()
	defer c.tenants.mu.Unlock()
	if c.tenants.read[c.tenant] == nil {
		c.tenants.read[c.tenant] = &strings.Builder{}
	}
	c.tenants.read[c.tenant].Write(b[:n])
	return n, err
}

func (s *tappedTenants) launch(socket *os.File) (host.Launched, error) {
	return helper.Goroutine((&tapped{s}).run)("", socket)
}

func (p *tapped) run(ctx context.Context, socket *os.File) error {
	node, c, err := receiveTenantConfig(ctx, socket)
	if err != nil {
		return err
	}
	defer node.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return p.serve(ctx, &c, node)
}

func (p *tapped) serve(ctx context.Context, c *tenant.Config, node *ipc.Conn) error {
	g, err := gateway.New(gateway.Options{Invoker: tappedInvoker(c.Tenant), Node: "harbour"})
	if err != nil {
		return err
	}
	route := gateway.Route{Path: "/{x...}", Target: gateway.Target{Function: "f"}}
	if err := g.SetApps([]gateway.App{{Name: c.Tenant + "shop", Routes: []gateway.Route{route}}}); err != nil {
		return err
	}
	var all sync.WaitGroup
	defer all.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	up := make(chan struct{})
	all.Go(func() { _ = g.Run(ctx, func() { close(up) }) })
	<-up
	accept := func(path string, serve func(*net.UnixConn)) error {
		l, err := unixsock.Listen(path)
		if err != nil {
			return err
		}
		context.AfterFunc(ctx, func() { _ = l.Close() })
		all.Go(func() {
			for {
				conn, err := l.AcceptUnix()
				if err != nil {
					return
				}
				serve(conn)
			}
		})
		return nil
	}
	control := func(conn *net.UnixConn) {
		defer conn.Close()
		_, _ = http.ReadRequest(bufio.NewReader(conn))
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
	}
	for path, serve := range map[string]func(*net.UnixConn){
		c.ControlSocket():  control,
		c.RequestsSocket(): func(conn *net.UnixConn) { g.ServeConn(&tap{conn, c.Tenant, p.tenants}, nil) },
	} {
		if err := accept(path, serve); err != nil {
			return err
		}
	}
	if err := node.Send(tenant.TypeReady, tenant.Ready{PID: 1}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = node.Close() })
	defer stop()
	node.Serve(func(m *ipc.Message) { // until the node closes the socket
		defer m.Close()
		if m.Type == tenant.TypeCloseConns {
			g.CloseClientConns()
		} else if conn, err := ipc.NetConn(m.File()); err == nil {
			g.ServeConn(&tap{conn, c.Tenant, p.tenants}, nil)
		}
		_ = node.Reply(m, nil, nil)
	})
	return nil
}

type tappedInvoker string

// Invoke implements gateway.Invoker.
func (i tappedInvoker) Invoke(_ context.Context, c gateway.Call) (gateway.Answer, error) {
	remote, _ := c.Meta("remote")
	_, leaked := c.Meta(gateway.ClientHeader)
	return gateway.Answer{Body: fmt.Appendf(nil, "%s to %s at %s %v", c.Body, i, remote, leaked)}, nil
}

// newIngress returns an ingress without a listener, whose tenants' processes are tapped.
func newIngress(t *testing.T) (*ingress, *tappedTenants) {
	t.Helper()
	dir, err := os.MkdirTemp("", "node") // sockets have short paths
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	i := &ingress{log: slog.New(slog.DiscardHandler)}
	if i.apps, err = catalog.Open(t.Context(), catalog.Options{State: statetest.Open(t), Self: "harbour"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.apps.Close() })
	processes := &tappedTenants{read: map[string]*strings.Builder{}}
	if i.tenants, err = host.Open(t.Context(), host.Options{Dir: filepath.Join(dir, "t"), Launch: processes.launch, Logger: i.log}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = i.tenants.Close() })
	return i, processes
}

// addApp deploys an app of the tenant, and waits until the tenant's process is ready.
func (i *ingress) addApp(t *testing.T, tenant string) {
	t.Helper()
	app := manifest.App{Name: tenant + "shop", Tenant: tenant, Functions: map[string]manifest.Function{"f": {Module: "f.wasm"}}}
	if _, err := i.apps.Apply(t.Context(), catalog.Version{App: app, File: "app.yaml", Files: map[string]string{"f.wasm": "x"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := i.tenants.Config(t.Context(), tenant); err != nil {
		t.Fatal(err)
	}
}

// A client that keeps its connection alive sends requests for apps of two tenants on it. No
// tenant's process reads a request of another one.
func TestNoTenantReadsAnothersRequests(t *testing.T) {
	n, processes := newIngress(t)
	n.listener = listenTCP(t)
	ctx, cancel := context.WithCancel(context.Background())
	served, up := make(chan error, 1), make(chan struct{})
	go func() { served <- n.run(ctx, func() { close(up) }) }()
	t.Cleanup(func() { cancel(); <-served })
	<-up
	n.addApp(t, "tea")
	conn, err := net.Dial("tcp", n.addr())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	in := bufio.NewReader(conn)
	ask := func(app, body string) (status int, text string, closes bool, err error) {
		if _, err := fmt.Fprintf(conn, "POST /%s/x HTTP/1.1\r\nHost: localhost\r\nOutboard-Client: forged\r\nContent-Length: %d\r\n\r\n%s", app, len(body), body); err != nil {
			return 0, "", false, err
		}
		r, err := http.ReadResponse(in, nil)
		if err != nil {
			return 0, "", false, err
		}
		defer r.Body.Close()
		answer, err := io.ReadAll(r.Body)
		return r.StatusCode, string(answer), r.Close, err
	}
	if status, text, closes, err := ask("teashop", "first of tea"); err != nil || status != 200 || closes || !strings.HasPrefix(text, "first of tea to tea at 127.0.0.1:") {
		t.Fatalf("%d %q %v %v", status, text, closes, err)
	}
	n.addApp(t, "coffee")
	// The connection on which tea's process read requests is closed: none of coffee's reaches it.
	if status, text, _, err := ask("coffeeshop", "secret of coffee"); err == nil {
		t.Errorf("it is answered on tea's connection: %d %q", status, text)
	}
	conn.Close()
	if conn, err = net.Dial("tcp", n.addr()); err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	in.Reset(conn)
	for range 2 {
		for _, tenant := range []string{"tea", "coffee"} {
			status, text, closes, err := ask(tenant+"shop", "secret of "+tenant)
			if err != nil || status != 200 || closes || !strings.HasPrefix(text, "secret of "+tenant+" to "+tenant+" at 127.0.0.1:") || !strings.HasSuffix(text, "false") {
				t.Fatalf("%d %q %v %v", status, text, closes, err)
			}
		}
	}
	if status, text, _, err := ask("milkshop", "x"); status != 404 || err != nil {
		t.Errorf("%d %q %v", status, text, err)
	}
	for tenant, other := range map[string]string{"tea": "coffee", "coffee": "tea"} {
		if strings.Contains(processes.of(tenant), "secret of "+other) || !strings.Contains(processes.of(tenant), "secret of "+tenant) {
			t.Errorf("the process of %s read:\n%s", tenant, processes.of(tenant))
		}
	}
}

func listenTCP(t *testing.T) *net.TCPListener {
	t.Helper()
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}
