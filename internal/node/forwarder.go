package node

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/acceptor"
	"github.com/outboard-run/outboard/internal/app/catalog"
	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/tenant/host"
)

// forwarder reads the requests of clients, determines the tenant of each, and forwards it to that
// tenant's process.
type forwarder struct {
	addr    net.Addr
	apps    *catalog.Catalog
	tenants *host.Host
	models  *models
	timeout time.Duration // how long a client may make the forwarder wait
	log     *slog.Logger

	server *http.Server
	conns  chan net.Conn
	closed chan struct{}
	open   *clientConns
	// requests counts the requests in progress of each tenant, of which it has tenantRequests at most.
	requests       tenantQuota
	tenantRequests int

	mu      sync.Mutex
	proxies map[string]*httputil.ReverseProxy // by tenant
}

// The bounds of connections on which requests are forwarded.
const (
	maxForwardedConns = 20_000
	// forwardedPercent leaves room for the second connection of each request, to its tenant's process.
	forwardedPercent = 30
	// maxForwardedRequests bounds the requests of one tenant that are in progress, WebSockets among
	// them. Each occupies a connection: a tenant that does not answer leaves half of them to others.
	maxForwardedRequests = maxForwardedConns / 2
	maxForwardedHead     = 64 << 10
	idleTimeout          = 2 * time.Minute
	// forwardGrace is how long requests in progress may take when the node stops.
	forwardGrace = 30 * time.Second
)

func newForwarder(i *ingress) *forwarder {
	conns := acceptor.Share(maxForwardedConns, forwardedPercent)
	f := &forwarder{
		addr: i.listener.Addr(), apps: i.apps, tenants: i.tenants, models: i.models, timeout: i.clientTimeout, log: i.log, conns: make(chan net.Conn), closed: make(chan struct{}),
		proxies: map[string]*httputil.ReverseProxy{}, tenantRequests: min(maxForwardedRequests, max(conns/2, 1)),
	}
	if f.timeout == 0 {
		f.timeout = gateway.DefaultClientTimeout
	}
	f.open = newClientConns(conns, f.timeout)
	f.server = &http.Server{
		Handler: f, ReadHeaderTimeout: f.timeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxForwardedHead,
		DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(i.log.Handler(), slog.LevelWarn),
	}
	return f
}

// run serves connections until ctx ends, and then lets the requests in progress finish.
func (f *forwarder) run(ctx context.Context) {
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		<-ctx.Done()
		close(f.closed)
		limit, cancel := context.WithTimeout(context.WithoutCancel(ctx), forwardGrace)
		defer cancel()
		if f.server.Shutdown(limit) != nil {
			_ = f.server.Close() // the grace period is over
		}
	}()
	_ = gateway.Serve(f.server, f) // it returns after Shutdown
	<-stopped
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.proxies {
		p.Transport.(*http.Transport).CloseIdleConnections() //nolint:errcheck // proxy made it
	}
}

// serve serves a connection, and returns before the connection ends.
func (f *forwarder) serve(conn net.Conn) {
	admitted := f.open.admit(conn)
	if admitted == nil {
		return
	}
	select {
	case f.conns <- admitted:
	case <-f.closed:
		_ = admitted.Close()
	}
}

// Accept implements net.Listener.
func (f *forwarder) Accept() (net.Conn, error) {
	select {
	case conn := <-f.conns:
		return conn, nil
	case <-f.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (f *forwarder) Close() error { return nil }

// Addr implements net.Listener.
func (f *forwarder) Addr() net.Addr { return f.addr }

// ServeHTTP implements http.Handler. It determines the tenant of a request.
func (f *forwarder) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if gateway.RefuseHTTP2(w, r) {
		return
	}
	r = gateway.BoundBody(w, r, f.timeout)
	app := gateway.AppOf(r.URL.Path)
	tenant := tenantOf(f.apps, app)
	switch {
	case gateway.Reserved(app):
		f.models.ServeHTTP(w, r)
	case tenant != "":
		f.forwardTo(tenant, w, r)
	case app == "":
		gateway.NewProblem(outboard.Errorf(outboard.NotFound, "", "the path names no app: it begins with one, as in /APP/...")).Write(w)
	default:
		gateway.NewProblem(outboard.Errorf(outboard.NotFound, "", "there is no app %q here", app)).Write(w)
	}
}

// forwardTo forwards a request to a tenant's process.
func (f *forwarder) forwardTo(tenant string, w http.ResponseWriter, r *http.Request) {
	if !f.requests.acquire(tenant, f.tenantRequests) {
		gateway.NewProblem(outboard.Errorf(outboard.Busy, "", "%d requests for apps of one tenant are in progress on this node, the most at once: try again later", f.tenantRequests)).Write(w)
		return
	}
	defer f.requests.release(tenant)
	r, release := outlastHalfClose(r)
	defer release()
	r, discard := forwardBody(w, r)
	f.proxy(tenant).ServeHTTP(continuesOnce{w}, r)
	discard()
}

// halfCloseGrace is how long a call goes on after its client has ended its sending. A tenant's process
// that has the connection itself notices the end about as late.
const halfCloseGrace = 100 * time.Millisecond

// outlastHalfClose returns the request with a context that ends halfCloseGrace after its own: net/http
// takes a client for gone that has ended its sending and waits for the response. release frees the
// context.
func outlastHalfClose(r *http.Request) (_ *http.Request, release func()) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(r.Context()))
	stop := context.AfterFunc(r.Context(), func() {
		timer := time.NewTimer(halfCloseGrace)
		defer timer.Stop()
		select {
		case <-timer.C:
			cancel(context.Cause(r.Context()))
		case <-ctx.Done():
		}
	})
	return r.WithContext(ctx), func() {
		stop()
		cancel(context.Canceled)
	}
}

// proxy returns the proxy to a tenant's process.
func (f *forwarder) proxy(tenant string) *httputil.ReverseProxy {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.proxies[tenant]
	if p == nil {
		p = f.newProxy(tenant, f.tenants.Forward(tenant))
		f.proxies[tenant] = p
	}
	return p
}

// newProxy returns a proxy to a tenant's process, which transport reaches.
func (f *forwarder) newProxy(tenant string, transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1, Rewrite: forward,
		ErrorLog:       f.server.ErrorLog,
		ModifyResponse: passClose,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if problem, ok := gateway.BodyProblem(r.Context()); ok {
				w.Header().Set("Connection", "close")
				problem.Write(w)
				return
			}
			if r.Context().Err() == nil {
				f.log.Warn("a request was not forwarded", "tenant", tenant, "error", err)
			}
			// The reason concerns only the operator.
			gateway.NewProblem(outboard.Errorf(outboard.Unreachable, "", "app %q can't be served here at the moment", gateway.AppOf(r.URL.Path))).Write(w)
		},
	}
}

// passClose closes the client's connection after a response after which the tenant's process closes its
// own, as it does when it refuses a body. net/http reads the rest of the body before it sends a response
// after which the connection is used again, and the client may wait with its body.
func passClose(r *http.Response) error {
	if r.Close && r.StatusCode != http.StatusSwitchingProtocols {
		r.Header.Set("Connection", "close")
	}
	return nil
}

// forward addresses a request to a tenant's process. All fields stay unchanged except those of the
// connection.
func forward(r *httputil.ProxyRequest) {
	r.Out.URL.Scheme, r.Out.URL.Host, r.Out.Host = "http", "tenant", r.In.Host
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if values := r.In.Header[name]; values != nil {
			r.Out.Header[name] = values
		}
	}
	// The transport sends the trailers after the body, whose reading fills them in.
	if r.In.Trailer == nil && r.In.ContentLength < 0 {
		r.In.Trailer = http.Header{} // for trailers that were not announced
	}
	r.Out.Trailer = r.In.Trailer
	r.Out.Header[gateway.ClientHeader] = []string{r.In.RemoteAddr}
}
