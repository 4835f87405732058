package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/netip"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/quota"
)

// Options configure the outgoing requests of a process.
type Options struct {
	// Private are the operator's exceptions: prefixes, addresses, and addresses with a port that
	// private entries of apps may have. The default is none.
	Private []string
	// InFlight bounds the requests in flight of all apps together. The default is 256.
	InFlight int
	// Budget bounds the bytes of responses that are being read; nil: no bound.
	Budget *quota.Budget
	// Registerer registers the metrics; nil: none.
	Registerer prometheus.Registerer

	// Lookup resolves a name. The default is the machine's resolver.
	Lookup func(ctx context.Context, name string) ([]netip.Addr, error)
	// Dial connects to an address that was checked. The default is TCP.
	Dial func(ctx context.Context, address netip.AddrPort) (net.Conn, error)
	// Addresses returns the addresses of this machine. The default reads its interfaces.
	Addresses func() ([]netip.Addr, error)
	// Roots verify the certificates of servers. The default is the machine's.
	Roots *x509.CertPool
}

func (o *Options) setDefaults() {
	if o.InFlight <= 0 {
		o.InFlight = 256
	}
	if o.Lookup == nil {
		o.Lookup = func(ctx context.Context, name string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", name)
		}
	}
	if o.Dial == nil {
		dialer := net.Dialer{Timeout: dialTimeout}
		o.Dial = func(ctx context.Context, address netip.AddrPort) (net.Conn, error) {
			return dialer.DialContext(ctx, "tcp", address.String())
		}
	}
	if o.Addresses == nil {
		o.Addresses = machineAddresses
	}
}

// dialTimeout bounds the attempt to connect to one of a host's addresses.
const dialTimeout = 5 * time.Second

// Egress sends the outgoing requests of a process's apps. All methods may be called by several
// goroutines.
type Egress struct {
	opts    Options
	private private
	slots   chan struct{}
	metrics *metrics
	tls     *tls.Config
}

// New returns an Egress. It starts nothing.
func New(opts Options) (*Egress, error) {
	opts.setDefaults()
	p, err := parsePrivate(opts.Private)
	if err != nil {
		return nil, err
	}
	e := &Egress{
		opts: opts, private: p, slots: make(chan struct{}, opts.InFlight),
		tls: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: opts.Roots},
	}
	e.metrics, err = newMetrics(opts.Registerer, func() int { return len(e.slots) })
	return e, err
}
