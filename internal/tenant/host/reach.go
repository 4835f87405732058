package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// ErrShared is the error of passing a connection while there are processes of several tenants, or
// the node serves models.
var ErrShared = errors.New("several tenants, or models, share this node")

// Sole returns the tenant to whose process whole connections are passed: the only one that has
// a process.
func (h *Host) Sole() (tenant string, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if len(h.tenants) != 1 || h.shared {
		return "", false
	}
	for tenant = range h.tenants {
	}
	return tenant, true
}

// Share stops passing connections and has the passed ones closed: the node itself serves requests
// that come on them.
func (h *Host) Share(ctx context.Context) {
	h.mu.Lock()
	before := h.shared
	h.shared = true
	h.mu.Unlock()
	if !before {
		h.closeConns(ctx, nil)
	}
}

// PassConn passes a connection from which nothing was read to the process of the sole tenant, once
// the process is ready. After an error the connection still belongs to the caller; ErrShared means
// that there is another tenant now.
func (h *Host) PassConn(ctx context.Context, tenant string, conn *net.TCPConn) error {
	k, err := h.awaitSupervisor(ctx, tenant)
	if err != nil {
		return err
	}
	h.passing.RLock() // another tenant's process starts after this connection is closed
	defer h.passing.RUnlock()
	if sole, ok := h.Sole(); !ok || sole != tenant {
		return ErrShared
	}
	file, err := conn.File()
	if err != nil {
		return fmt.Errorf("pass a connection: %w", err)
	}
	defer file.Close()
	if err := k.passConn(file); err != nil {
		return err
	}
	return conn.Close()
}

// passConn passes a connection to the process. The process does not confirm it.
func (s *supervisor) passConn(conn *os.File) error {
	process, err := s.conn()
	if err != nil {
		return err
	}
	return process.Send(tenant.TypeConn, nil, conn)
}

// closeConns has all processes except but's read no more requests on the connections passed to
// them: but's tenant is about to have a process, and clients may send its requests on those
// connections. A process that does not confirm is killed.
func (h *Host) closeConns(ctx context.Context, but *supervisor) {
	h.passing.Lock()   // a connection that is being passed is closed as well
	h.passing.Unlock() //nolint:staticcheck,gocritic // an empty critical section: a barrier
	var closing sync.WaitGroup
	for _, k := range h.others(but) {
		process, err := k.conn()
		if err != nil {
			continue // no connection was passed to it
		}
		closing.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, h.opts.CloseTimeout)
			defer cancel()
			if _, err := process.Call(ctx, tenant.TypeCloseConns, nil); err != nil && !errors.Is(err, ipc.ErrClosed) && !errors.Is(err, context.Canceled) {
				h.log.Error("a tenant's process does not close its clients' connections, and is ended", "tenant", k.config.Tenant, "error", err)
				k.kill()
			}
		})
	}
	closing.Wait()
}

// others returns all supervisors except but.
func (h *Host) others(but *supervisor) []*supervisor {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []*supervisor
	for _, k := range h.tenants {
		if k != but {
			all = append(all, k)
		}
	}
	return all
}

// Forward returns the transport to a tenant's process for requests of clients. It waits until
// the process is ready.
func (h *Host) Forward(tenant string) *http.Transport {
	return &http.Transport{
		MaxIdleConnsPerHost: maxIdleForwards, IdleConnTimeout: time.Minute, DisableCompression: true,
		ExpectContinueTimeout: expectLimit,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return h.dial(ctx, tenant, (*config).RequestsSocket)
		},
	}
}

// config is the configuration of a tenant's process; tenant is often the name of a variable.
type config = tenant.Config

// dial connects to a socket of a tenant's process, once the process is ready.
func (h *Host) dial(ctx context.Context, name string, path func(*config) string) (net.Conn, error) {
	k, err := h.awaitSupervisor(ctx, name)
	if err != nil {
		return nil, err
	}
	return k.dial(ctx, path(&k.config))
}

// dial connects to a socket of the process, which is ready.
func (s *supervisor) dial(ctx context.Context, path string) (net.Conn, error) {
	conn, err := unixsock.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	if err := unixsock.CheckPeer(conn, s.checkListener); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// checkListener returns an error unless the process that listens is the tenant's own. The sockets are in
// the tenant's folder: a guest that broke out could replace one by a link to a socket of the node, or
// of another tenant, who serve whatever the node sends.
func (s *supervisor) checkListener(pid int) error {
	s.mu.Lock()
	process := s.process
	s.mu.Unlock()
	own := os.Getpid() // of a test without processes
	if numbered, ok := process.(interface{ PID() int }); ok {
		own = numbered.PID()
	}
	if pid != own || process == nil {
		return outboard.Errorf(outboard.Denied, "the process of tenant "+s.config.Tenant, "process %d listens at its socket: a guest may have broken out", pid)
	}
	return nil
}

// maxIdleForwards bounds the idle connections kept to a process for requests.
const maxIdleForwards = 256

// expectLimit is how long a process may take to accept or refuse a body before it is sent, if the client
// expects 100 Continue.
const expectLimit = time.Minute

// transport returns a transport to the local API of a tenant's process. Its requests wait until the
// process is ready.
func (h *Host) transport(name string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return h.dial(ctx, name, (*config).ControlSocket)
	}, DisableKeepAlives: true}
}

// client returns a client of the local API of a tenant's process, for short requests.
func (h *Host) client(name string) *http.Client {
	t := h.transport(name)
	t.ResponseHeaderTimeout = answerLimit
	return &http.Client{Transport: t}
}

// answerLimit is how long a process may take to answer a short request.
const answerLimit = 10 * time.Second

// address returns the URL of a path of the local API of a tenant's process.
func address(path string) string { return "http://tenant" + path }

// Proxy forwards a request for the local API to a tenant's process.
func (h *Host) Proxy(name string, failed func(http.ResponseWriter, error)) http.Handler {
	return &httputil.ReverseProxy{
		Transport:     h.transport(name),
		FlushInterval: -1, // logs are followed
		Rewrite:       func(r *httputil.ProxyRequest) { r.Out.URL.Scheme, r.Out.URL.Host = "http", "tenant" },
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, err error) {
			if !errors.Is(err, context.Canceled) {
				failed(w, unreachable(name, err))
			}
		},
	}
}

// unreachable returns the error of a connection to a process. An error of Config stays as it is, so
// that no text is repeated.
func unreachable(name string, err error) error {
	if known, ok := errors.AsType[*outboard.Error](err); ok {
		return known
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		err = fmt.Errorf("it does not answer: %w", err)
	}
	return outboard.Errorf(outboard.Unreachable, "the process of tenant "+name, "%w", err)
}

// Get requests JSON from a tenant's process.
func (h *Host) Get(ctx context.Context, name, path string, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address(path), nil)
	if err != nil {
		return err
	}
	response, err := h.client(name).Do(request)
	if err != nil {
		return unreachable(name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		var failure client.Failure
		if err := json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxAnswer)).Decode(&failure); err != nil {
			return outboard.Errorf(outboard.Protocol, "the process of tenant "+name, "status %s", response.Status)
		}
		return failure.Err()
	}
	return json.NewDecoder(http.MaxBytesReader(nil, response.Body, maxAnswer)).Decode(into)
}

// maxAnswer bounds the answer to a short request. A guest may have taken over the process.
const maxAnswer = 64 << 20

// SetMembers sends the nodes of the pool to all processes, including later ones.
func (h *Host) SetMembers(ctx context.Context, members []outboard.Node) {
	h.mu.Lock()
	h.members = members
	h.mu.Unlock()
	for _, k := range h.others(nil) {
		h.running.Go(func() { k.sendMembers(ctx) })
	}
}

// known returns the members that were set last.
func (h *Host) known() []outboard.Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.members
}

// membersLimit is how long a process may take to accept the members.
const membersLimit = 10 * time.Second

// sendMembers sends the process the nodes of the pool once it is ready. It does not count as a
// request of the process, which would keep the process of a tenant without apps.
func (s *supervisor) sendMembers(ctx context.Context) {
	h, name := s.host, s.config.Tenant
	s.sending.Lock() // the nodes that are sent last are the present ones
	defer s.sending.Unlock()
	ctx, cancel := context.WithTimeout(ctx, membersLimit)
	defer cancel()
	text, err := json.Marshal(h.known())
	if err != nil {
		return
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPut, address("/v1/members"), bytes.NewReader(text))
	if err != nil {
		return
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		if err := s.await(ctx); err != nil {
			return nil, err
		}
		return s.dial(ctx, s.config.ControlSocket())
	}
	response, err := (&http.Transport{DialContext: dial, DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		h.log.Debug("a tenant's process was not told which nodes there are", "tenant", name, "error", err)
		return
	}
	_ = response.Body.Close()
}
