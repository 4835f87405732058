package egress_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/egress"
	"github.com/outboard-run/outboard/internal/quota"
)

func parse(t testing.TB, texts ...string) []egress.Host {
	t.Helper()
	var all []egress.Host
	for _, text := range texts {
		text, private := strings.CutSuffix(text, " private")
		h, err := egress.ParseHost(text)
		if err != nil {
			t.Fatal(err)
		}
		h.Private = private
		all = append(all, h)
	}
	return all
}

func TestParseHost(t *testing.T) {
	for text, want := range map[string]string{
		"api.example.com": "api.example.com", "API.example.com.": "api.example.com", "*.example.com:8443": "*.example.com:8443",
		"10.0.0.7": "10.0.0.7", "[2001:db8::1]:80": "[2001:db8::1]:80", "::ffff:10.0.0.7": "10.0.0.7", "orders": "orders",
		"": "", "*": "", "a b": "", "a:0": "", "a:65536": "", "https://a": "", "a/b": "", "a*.b": "", "*.*.b": "", "fe80::1%eth0": "", "-a": "",
	} {
		h, err := egress.ParseHost(text)
		if err != nil {
			h = egress.Host{}
		}
		if h.String() != want {
			t.Errorf("%q: %q, %v; want %q", text, h, err, want)
		}
	}
}

func TestCheck(t *testing.T) {
	hosts := parse(t, "api.example.com", "*.example.org:8443", "10.0.0.7")
	for target, want := range map[string]bool{
		"https://api.example.com": true, "http://API.example.com.": true, "https://api.example.com:443": true,
		"https://api.example.com:8443": false, "https://example.com": false, "https://xapi.example.com": false, "https://api.example.com.evil": false,
		"https://a.example.org:8443": true, "https://a.b.example.org:8443": true, "https://example.org:8443": false, "https://.example.org:8443": false,
		"https://a.example.org": false, "http://10.0.0.7": true, "http://[::ffff:10.0.0.7]": true, "ftp://api.example.com": false,
		"https://api.example.com:x": false, "https://": false,
	} {
		scheme, host, _ := strings.Cut(target, "://")
		if err := egress.Check(hosts, scheme, host); (err == nil) != want {
			t.Errorf("%s: %v, want %v", target, err, want)
		}
	}
}

// Addresses are checked when a connection is made, whatever the name is.
func TestAddresses(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.1")
	for name, c := range map[string]struct {
		host     string // of the allow-list and of the request
		resolves string
		operator []string
		want     bool
	}{
		"public":                 {"a.example.com", "93.184.215.14", nil, true},
		"private":                {"a.example.com", "10.1.2.3", nil, false},
		"of the app alone":       {"a.example.com private", "10.1.2.3", nil, false},
		"of the operator alone":  {"a.example.com", "10.1.2.3", []string{"10.0.0.0/8"}, false},
		"of both":                {"a.example.com private", "10.1.2.3", []string{"10.0.0.0/8"}, true},
		"of another prefix":      {"a.example.com private", "10.1.2.3", []string{"192.168.0.0/16"}, false},
		"own, by the prefix":     {"a.example.com private", "10.0.0.1", []string{"10.0.0.0/8"}, false},
		"own, with another port": {"a.example.com private", "10.0.0.1", []string{"10.0.0.1:81"}, false},
		"own, with its port":     {"a.example.com private", "10.0.0.1", []string{"10.0.0.1:80"}, true},
		"loopback":               {"a.example.com private", "127.0.0.1", []string{"127.0.0.0/8"}, false},
		"loopback by 4-in-6":     {"a.example.com private", "::ffff:127.0.0.1", []string{"0.0.0.0/0", "::/0"}, false},
		"any":                    {"a.example.com private", "0.0.0.0", []string{"0.0.0.0/0"}, false},
		"metadata service":       {"169.254.169.254", "", nil, false},
		"NAT64":                  {"a.example.com", "64:ff9b::7f00:1", nil, false},
		"6to4":                   {"a.example.com", "2002:7f00:1::", nil, false},
		"unique local":           {"a.example.com", "fd00::1", nil, false},
		"link-local with a zone": {"a.example.com", "fe80::1%lo", nil, false},
		"discard-only":           {"a.example.com", "100::1", nil, false},
		"4-in-6, translated":     {"a.example.com", "::ffff:0:127.0.0.1", nil, false},
		"segment routing":        {"a.example.com", "5f00::1", nil, false},
		"of both, in IPv6":       {"a.example.com private", "fd00::1", []string{"fd00::/8"}, true},
		"public IPv6":            {"a.example.com", "2606:2800:21f:cb07::1", nil, true},
	} {
		t.Run(name, func(t *testing.T) {
			dialed := false
			e, err := egress.New(egress.Options{
				Private:   c.operator,
				Addresses: func() ([]netip.Addr, error) { return []netip.Addr{own}, nil },
				Lookup: func(context.Context, string) ([]netip.Addr, error) {
					return []netip.Addr{netip.MustParseAddr(c.resolves)}, nil
				},
				Dial: func(context.Context, netip.AddrPort) (net.Conn, error) {
					dialed = true
					return nil, errors.New("dialed")
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			client := e.Client("app", parse(t, c.host))
			r := request(t, "http://"+strings.TrimSuffix(c.host, " private")+"/")
			_, err = client.RoundTrip(r) //nolint:bodyclose // There is no response.
			if dialed != c.want || !c.want && outboard.KindOf(err) != outboard.Denied {
				t.Errorf("dialed: %v, want %v; %v", dialed, c.want, err)
			}
		})
	}
}

func request(t testing.TB, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// open returns a client for a server of the test.
func open(t *testing.T, h http.HandlerFunc, opts egress.Options) (*egress.Client, string) {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	address := s.Listener.Addr().String()
	opts.Private = []string{address}
	e, err := egress.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	c := e.Client("app", parse(t, address+" private"))
	t.Cleanup(func() { _ = c.Close() })
	return c, s.URL
}

// Requests beyond the bound are refused, and one that ends makes room.
func TestInFlight(t *testing.T) {
	c, url := open(t, func(http.ResponseWriter, *http.Request) {}, egress.Options{InFlight: 1})
	first, err := c.RoundTrip(request(t, url))
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := c.RoundTrip(request(t, url)); outboard.KindOf(err) != outboard.Busy {
		_ = resp.Body.Close()
		t.Errorf("the second: %v", err)
	}
	_ = first.Body.Close()
	second, err := c.RoundTrip(request(t, url))
	if err != nil {
		t.Fatal(err)
	}
	_ = second.Body.Close()
}

// The bytes of responses are counted until they are closed.
func TestBudget(t *testing.T) {
	budget := quota.NewBudget(quota.Requests, 10)
	c, url := open(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "0123456789abcdef") }, egress.Options{Budget: budget})
	resp, err := c.RoundTrip(request(t, url))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(resp.Body); outboard.KindOf(err) != outboard.Exhausted {
		t.Errorf("16 bytes of 10: %v", err)
	}
	_ = resp.Body.Close()
	if held := budget.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// A server that changes the protocol would have the reader of its body wait for ever.
func TestNoOtherProtocol(t *testing.T) {
	ended := make(chan struct{})
	c, url := open(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn) // until the client closes
		ended <- struct{}{}
	}, egress.Options{InFlight: 1})
	for range 2 { // the request is not in flight afterwards
		if resp, err := c.RoundTrip(request(t, url)); outboard.KindOf(err) != outboard.Protocol {
			_ = resp.Body.Close()
			t.Fatalf("got %v, %v", resp, err)
		}
		<-ended
	}
}

// The environment's proxy would resolve names by itself.
func TestNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://127.0.0.1:1")
	c, url := open(t, func(http.ResponseWriter, *http.Request) {}, egress.Options{})
	resp, err := c.RoundTrip(request(t, url))
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
}

func TestCheckPrivate(t *testing.T) {
	var good []string
	for _, text := range []string{"10.0.0.0/8", "10.0.0.7", "127.0.0.1:9000", "[::1]:80", "a", "10.0.0.0/33", "10.0.0.1:x", ""} {
		if egress.CheckPrivate([]string{text}) == nil {
			good = append(good, text)
		}
	}
	if diff := cmp.Diff([]string{"10.0.0.0/8", "10.0.0.7", "127.0.0.1:9000", "[::1]:80"}, good); diff != "" {
		t.Error(diff)
	}
}

// What is parsed is written in the same way.
func FuzzParseHost(f *testing.F) {
	for _, text := range []string{"a", "*.a:1", "[::1]:80", "10.0.0.1", "a.:1", "::ffff:1.2.3.4"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		h, err := egress.ParseHost(text)
		if err != nil {
			return
		}
		if again, err := egress.ParseHost(h.String()); err != nil || again != h {
			t.Errorf("%q: %v, again %v, %v", text, h, again, err)
		}
		if _, ok := egress.Find([]egress.Host{h}, "x.invalid", 1); ok && h.Name != "x.invalid" && h.Name != "*.invalid" {
			t.Errorf("%v allows x.invalid", h)
		}
	})
}
