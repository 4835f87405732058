package egress

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/quota"
)

// Client sends the requests of one app. It implements http.RoundTripper; it follows no
// redirects. Its connections are the app's alone.
type Client struct {
	egress *Egress
	app    string
	hosts  []Host
	http   *http.Transport
}

// Client returns a client for an app's allow-list. Unused connections close by themselves.
func (e *Egress) Client(app string, hosts []Host) *Client {
	c := &Client{egress: e, app: app, hosts: hosts}
	c.http = &http.Transport{
		DialContext: c.dial, TLSClientConfig: e.tls.Clone(), ForceAttemptHTTP2: true,
		MaxIdleConnsPerHost: 8, MaxIdleConns: 64, MaxConnsPerHost: 64, IdleConnTimeout: 15 * time.Second,
		TLSHandshakeTimeout: 10 * time.Second, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 64 << 10,
	}
	return c
}

// Close closes unused connections. The client can be used further.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// RoundTrip sends one request. An error of the kind Denied names the rule that refused it; an error
// of the kind Busy says that nothing was sent because too many requests are in flight.
func (c *Client) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := c.send(r)
	status := 0
	if err == nil {
		status = resp.StatusCode
	}
	c.egress.metrics.ended(c.app, status, err)
	return resp, err
}

func (c *Client) send(r *http.Request) (*http.Response, error) {
	if err := Check(c.hosts, r.URL.Scheme, r.URL.Host); err != nil {
		closeBody(r)
		return nil, err
	}
	select {
	case c.egress.slots <- struct{}{}:
	default:
		closeBody(r)
		return nil, outboard.Errorf(outboard.Busy, "", "%d outgoing requests are in flight on this node, the most at once: try again later", cap(c.egress.slots))
	}
	release := sync.OnceFunc(func() { <-c.egress.slots })
	resp, err := c.http.RoundTrip(r)
	if err != nil {
		release()
		return nil, err
	}
	if resp.StatusCode == http.StatusSwitchingProtocols {
		// Its body is the connection, on which a read has no deadline.
		_ = resp.Body.Close()
		release()
		return nil, outboard.Errorf(outboard.Protocol, "", "the response has status 101, for a change of the protocol that was not requested")
	}
	resp.Body = &body{ReadCloser: resp.Body, release: release, budget: c.egress.opts.Budget}
	return resp, nil
}

// Check returns an error of the kind Denied unless an allow-list has a host, "HOST" or
// "HOST:PORT" of a URL of the scheme.
func Check(hosts []Host, scheme, host string) error {
	name, port, err := splitHost(scheme, host)
	if err != nil {
		return err
	}
	if _, ok := Find(hosts, name, port); !ok {
		return outboard.Errorf(outboard.Denied, "", "the app may not send requests to %s: the outgoing of its manifest allows %s",
			net.JoinHostPort(name, strconv.Itoa(int(port))), list(hosts))
	}
	return nil
}

func splitHost(scheme, host string) (name string, port uint16, err error) {
	switch scheme {
	case "http":
		port = 80
	case "https":
		port = 443
	default:
		return "", 0, outboard.Errorf(outboard.Invalid, "", "the scheme %q is not supported: http and https are", scheme)
	}
	u, text, err := net.SplitHostPort(host)
	if err != nil {
		return canonicalName(trimBrackets(host)), port, nil //nolint:nilerr // it has no port
	}
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		return "", 0, outboard.Errorf(outboard.Invalid, "", "the port %q is no number from 1 to 65535", text)
	}
	return canonicalName(u), uint16(n), nil
}

func trimBrackets(host string) string {
	if n := len(host); n > 2 && host[0] == '[' && host[n-1] == ']' {
		return host[1 : n-1]
	}
	return host
}

func closeBody(r *http.Request) {
	if r.Body != nil {
		_ = r.Body.Close() // a RoundTripper must close it
	}
}

// body is a response's body. Its bytes, which the reader keeps, and the request's slot are
// released when it is closed.
type body struct {
	io.ReadCloser
	release func()
	budget  *quota.Budget
	held    int64
}

// Read reads from the response's body.
func (b *body) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if full := b.budget.TryReserve(int64(n)); full != nil {
		return 0, outboard.Errorf(outboard.Exhausted, "read the response", "%w", full)
	}
	b.held += int64(n)
	return n, err
}

// Close closes the response's body.
func (b *body) Close() error {
	b.budget.Release(b.held)
	b.held = 0
	b.release()
	return b.ReadCloser.Close()
}

// dial resolves a host and connects to the first of its addresses that is allowed and answers.
func (c *Client) dial(ctx context.Context, _, address string) (net.Conn, error) {
	name, port, err := splitHost("http", address)
	if err != nil {
		return nil, err
	}
	h, ok := Find(c.hosts, name, port)
	if !ok {
		return nil, outboard.Errorf(outboard.Denied, "", "the app may not connect to %s", address)
	}
	addresses, err := c.egress.resolve(ctx, name)
	if err != nil {
		return nil, outboard.Errorf(outboard.Unreachable, "resolve "+name, "%w", err)
	}
	own, err := c.egress.opts.Addresses()
	if err != nil {
		return nil, outboard.Errorf(outboard.Denied, "", "the addresses of this machine are not known: %w", err)
	}
	return c.dialAny(ctx, h, netip.AddrPortFrom(netip.Addr{}, port), addresses, own)
}

// dialAny connects to the first address, with the port of at, that is allowed and answers.
func (c *Client) dialAny(ctx context.Context, h Host, at netip.AddrPort, addresses, own []netip.Addr) (net.Conn, error) {
	var errs []error
	denied := true
	for _, a := range addresses {
		to := netip.AddrPortFrom(a.Unmap(), at.Port())
		if reason := c.egress.private.checkAddress(h, to, own); reason != "" {
			errs = append(errs, outboard.Errorf(outboard.Denied, "", "%s", reason))
			continue
		}
		conn, err := c.egress.opts.Dial(ctx, to)
		if err == nil {
			return conn, nil
		}
		denied = false
		errs = append(errs, err)
	}
	kind := outboard.Unreachable
	if denied && len(errs) > 0 {
		kind = outboard.Denied
	}
	if len(errs) == 0 {
		errs = append(errs, errors.New("the name has no address"))
	}
	return nil, outboard.Errorf(kind, "connect to "+h.Name, "%w", errors.Join(errs...))
}

// maxAddresses bounds how many addresses of a name are tried.
const maxAddresses = 8

func (e *Egress) resolve(ctx context.Context, name string) ([]netip.Addr, error) {
	if address, err := netip.ParseAddr(name); err == nil {
		return []netip.Addr{address}, nil
	}
	all, err := e.opts.Lookup(ctx, name)
	return all[:min(len(all), maxAddresses)], err
}
