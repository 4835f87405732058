package connmetrics_test

import (
	"crypto/tls"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/fabric/connmetrics"
	"github.com/outboard-run/outboard/internal/fabric/framed"
	"github.com/outboard-run/outboard/internal/metricstest"
)

// tcp is a connected pair of sockets.
func tcp(t *testing.T) (a, b net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if a, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// counted are options whose events to counts.
func counted(to prometheus.Registerer) framed.Options {
	return framed.Options{Observer: connmetrics.Observer(to)}
}

// value is one number of a registry: name{label} or name.
func value(t *testing.T, from prometheus.Gatherer, name, label string) float64 {
	t.Helper()
	families, err := from.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() != name || label != "" && m.GetLabel()[0].GetValue() != label {
				continue
			}
			switch {
			case m.Counter != nil:
				return m.GetCounter().GetValue()
			case m.Gauge != nil:
				return m.GetGauge().GetValue()
			default:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return 0
}

// Two connections share a Registerer: their numbers are sums, and their ends are
// told apart.
func TestMetrics(t *testing.T) {
	near, far := prometheus.NewRegistry(), prometheus.NewRegistry()
	text := strings.Repeat("x", 100_000)
	for range 2 {
		a, b := tcp(t)
		client, server := framed.Client(a, counted(near)), framed.Server(b, counted(far))
		t.Cleanup(func() {
			go client.Close()
			server.Close()
			client.Close()
		})
		s, err := client.Open(t.Context(), "m", nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := s.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		peer, err := server.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, len(text))
		for got := 0; got < len(text); {
			n, err := peer.Read(buf[got:])
			if err != nil {
				t.Fatal(err)
			}
			got += n
		}
		for client.RTT() == 0 {
			<-time.After(time.Millisecond) // the peer's answer is on its way
		}
	}
	if n, err := metricstest.Count(near); err != nil || n == 0 {
		t.Fatalf("got %d metrics, %v", n, err)
	}
	for name, test := range map[string]struct {
		from        *prometheus.Registry
		name, label string
		least, most float64
	}{
		"connections":       {near, "outboard_fabric_connections", "", 2, 2},
		"streams":           {near, "outboard_fabric_streams", "", 2, 2},
		"own streams":       {near, "outboard_fabric_streams_total", "own", 2, 2},
		"peer's streams":    {far, "outboard_fabric_streams_total", "peer", 2, 2},
		"sent":              {near, "outboard_fabric_bytes_total", "sent", 200_000, 201_000},
		"received":          {far, "outboard_fabric_bytes_total", "received", 200_000, 201_000},
		"round trips":       {near, "outboard_fabric_round_trip_seconds", "", 2, 100},
		"no end":            {near, "outboard_fabric_connections_ended_total", "closed", 0, 0},
		"sent without data": {far, "outboard_fabric_bytes_total", "sent", 1, 2000},
	} {
		t.Run(name, func(t *testing.T) {
			if got := value(t, test.from, test.name, test.label); got < test.least || got > test.most {
				t.Errorf("got %v, want %v to %v", got, test.least, test.most)
			}
		})
	}
}

func TestNoRegistererObservesNothing(t *testing.T) {
	if o := connmetrics.Observer(nil); o != nil {
		t.Errorf("got %v, want nil", o)
	}
}

func TestMetricsOfEnds(t *testing.T) {
	near, far := prometheus.NewRegistry(), prometheus.NewRegistry()
	const ended = "outboard_fabric_connections_ended_total"
	a, b := tcp(t)
	client, server := framed.Client(a, counted(near)), framed.Server(b, counted(far))
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	<-server.Done()
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	if a, b := value(t, near, ended, "closed"), value(t, far, ended, "closed"); a != 1 || b != 1 {
		t.Errorf("closed: got %v and %v, want 1 and 1", a, b)
	}
	if got := value(t, near, "outboard_fabric_connections", ""); got != 0 {
		t.Errorf("connections: got %v, want 0", got)
	}

	a, b = tcp(t)
	o := counted(far)
	o.TLS = new(tls.Config)
	refusing := framed.Server(b, o)
	if _, err := a.Write([]byte("this is no TLS at all, and long enough")); err != nil {
		t.Fatal(err)
	}
	<-refusing.Done()
	if err := refusing.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, far, ended, "refused"); got != 1 {
		t.Errorf("refused: got %v, want 1", got)
	}
}
