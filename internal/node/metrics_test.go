package node_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/unixsock"
	"github.com/outboard-run/outboard/outboardtest"
)

// metrics is what the node tells Prometheus.
func metrics(t *testing.T, n *outboardtest.Node) string {
	t.Helper()
	door := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsock.Dial(ctx, filepath.Join(n.Data, client.SocketName))
	}}}
	defer door.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://node/metrics", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	response, err := door.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(response.Body)
	if closeErr := response.Body.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	return string(text)
}

// A program on another node shows in the numbers of the fabric, a stranger in
// those of the refused.
func TestMetricsOfPeers(t *testing.T) {
	p := outboardtest.Start(t, outboardtest.Options{Nodes: pair()})
	harbour := p.Node("harbour")
	r := run(t, p.Node("dinghy"), nil, "hello", "wait")
	r.line(t)
	if got := metrics(t, harbour); !strings.Contains(got, "\noutboard_fabric_connections 1\n") {
		t.Errorf("no connection in\n%s", got)
	}
	if err := r.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	r.end(t)
	eventually(t, "the connection is gone", func() bool {
		return strings.Contains(metrics(t, harbour), "\noutboard_fabric_connections 0\n")
	})

	status, err := harbour.Client().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stranger, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", status.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	if _, err := io.WriteString(stranger, "GET / HTTP/1.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the stranger is counted", func() bool {
		return strings.Contains(metrics(t, harbour), `outboard_node_peers_refused_total{kind="protocol"} 1`)
	})
	documented(t, metrics(t, harbour))
}

// documented wants the manual to explain all metrics.
func documented(t *testing.T, text string) {
	t.Helper()
	var names []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "# TYPE "); ok {
			name, _, _ := strings.Cut(rest, " ")
			names = append(names, name)
		}
	}
	need.Documented(t, "../../docs/operations.md", names)
}
