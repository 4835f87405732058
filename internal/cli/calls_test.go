package cli_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// registerCalls serves two services, one of which is a gRPC server that was added, and two nodes.
func registerCalls(handle func(string, func(*http.Request) (any, error))) {
	handle("GET /v1/services", func(*http.Request) (any, error) {
		return []client.Service{
			{Name: "shop.Cart", Endpoints: 2, Nodes: []outboard.NodeID{"dinghy", "harbour"}, Methods: []string{"Add", "Remove"}},
			{Name: "shop.Stock", Endpoints: 1, Nodes: []outboard.NodeID{"harbour"}},
			{Name: ownService, Endpoints: 1, Nodes: []outboard.NodeID{"harbour"}},
		}, nil
	})
	handle("GET /v1/endpoints", func(r *http.Request) (any, error) {
		all := []client.Endpoint{
			{ID: "e1", Node: "harbour", Services: []string{"shop.Cart"}, Program: "cart", PID: 17, Started: time.Now()},
			{ID: "e2", Node: "harbour", Services: []string{"shop.Stock"}, Address: "127.0.0.1:50051", Started: time.Now()},
			{ID: "e3", Node: "harbour", Services: []string{ownService}, Program: "exe", PID: 18, Started: time.Now()},
		}
		service := r.URL.Query().Get("service")
		return slices.DeleteFunc(all, func(e client.Endpoint) bool { return service != "" && !slices.Contains(e.Services, service) }), nil
	})
	handle("DELETE /v1/endpoints", func(r *http.Request) (any, error) {
		if id := r.URL.Query().Get("id"); id != "e2" {
			return nil, notThere("endpoint", id)
		}
		return struct{}{}, nil
	})
	handle("GET /v1/calls", func(*http.Request) (any, error) {
		return []client.Calls{
			{
				Service: "shop.Cart", Method: "Add", Rate: 120.25, Errors: 0.5, P50: client.Duration(80 * time.Microsecond), P99: client.Duration(2 * time.Millisecond),
				Sent: 4096, Received: 1024, InFlight: 3, Total: 1000, Acted: map[string]uint64{"retry": 4, "break": 1},
			},
			{Service: "shop.Stock", Method: "Count"},
			{Service: ownService, Method: "Counts"},
		}, nil
	})
	handle("GET /v1/nodes", func(*http.Request) (any, error) {
		return []outboard.Node{{ID: "harbour", Addr: "192.0.2.1:7433", Copy: true, Version: "1.2"}, {ID: "dinghy", Addr: "192.0.2.2:7433"}}, nil
	})
	handle("DELETE /v1/nodes/{node}", func(r *http.Request) (any, error) {
		if r.PathValue("node") != "dinghy" || r.URL.Query().Get("away") != "24h0m0s" {
			return nil, notThere("node", r.PathValue("node"))
		}
		return struct{}{}, nil
	})
}

// ownService is a service of the pool itself.
const ownService = "outboard.tenant.default.harbour"

// The services of the pool itself are in no list, unless one is named.
func TestOwnServicesAreNotListed(t *testing.T) {
	n := startNode(t)
	for _, list := range []string{"services", "endpoints", "calls"} {
		for _, format := range []string{"text", "json"} {
			if out := n.succeed(t, list, "-o", format); strings.Contains(out, ownService) || !strings.Contains(out, "shop.Cart") {
				t.Errorf("outboard %s -o %s:\n%s", list, format, out)
			}
		}
	}
	contains(t, n.succeed(t, "endpoints", "--service", ownService), "\ne3 harbour "+ownService+" - exe (18) 0s\n")
	contains(t, n.succeed(t, "calls", "--service", ownService), "\n"+ownService+" Counts ")
}

func TestCalls(t *testing.T) {
	n := startNode(t)
	contains(t, n.succeed(t, "calls"), "\nSERVICE METHOD CALLS/s ERRORS/s P50 P99 SENT RECEIVED IN FLIGHT TOTAL POLICIES\n",
		"\nshop.Cart Add 120.2 0.5 80µs 2ms 4KiB/s 1KiB/s 3 1000 break:1 retry:4\n", "\nshop.Stock Count 0.0 0.0 - - 0B/s 0B/s 0 0 -\n")
	if out := n.succeed(t, "calls", "--service", "shop.Stock"); strings.Contains(out, "shop.Cart") {
		t.Errorf("--service shows other services:\n%s", out)
	}
	contains(t, n.succeed(t, "calls", "-o", "json"), `"p99": "2ms"`)
	if got := n.completions(t, "calls", "--service", "shop.C"); !slices.Equal(got, []string{"shop.Cart"}) {
		t.Errorf("--service is completed by %q", got)
	}
	n.refuse(t, 2, "--every 1ms: want 100ms or more", "calls", "-f", "--every", "1ms")
}

func TestEndpoints(t *testing.T) {
	n := startNode(t)
	contains(t, n.succeed(t, "services"), "\nshop.Cart 2 dinghy harbour Add Remove\n", "\nshop.Stock 1 harbour -\n")
	contains(t, n.succeed(t, "endpoints"), "\ne1 harbour shop.Cart - cart (17) 0s\n", "\ne2 harbour shop.Stock 127.0.0.1:50051 - 0s\n")
	if out := n.succeed(t, "endpoints", "--service", "shop.Stock"); strings.Contains(out, "e1") {
		t.Errorf("--service shows other endpoints:\n%s", out)
	}
	contains(t, n.succeed(t, "endpoints", "remove", "e2"), "\nendpoint e2 was removed\n")
	n.refuse(t, 11, `there is no endpoint "e9"`, "endpoints", "remove", "e9")
	n.refuse(t, 2, "name one endpoint", "endpoints", "remove")
	n.refuse(t, 2, "name the server's address", "endpoints", "add", "127.0.0.1:1")
	if got := n.completions(t, "endpoints", "remove", ""); !slices.Equal(got, []string{"e2"}) {
		t.Errorf("endpoints remove is completed by %q, want only what was added", got)
	}
	if got := n.completions(t, "endpoints", "add", "127.0.0.1:1", "shop."); !slices.Equal(got, []string{"shop.Cart", "shop.Stock"}) {
		t.Errorf("endpoints add is completed by %q", got)
	}
}

func TestNodesRemove(t *testing.T) {
	n := startNode(t)
	contains(t, n.succeed(t, "nodes", "remove", "dinghy", "--away", "24h"), "\nnode dinghy was removed\n")
	n.refuse(t, 11, `there is no node "buoy"`, "nodes", "remove", "buoy")
	n.refuse(t, 2, "name one node", "nodes", "remove")
	if got := n.completions(t, "nodes", "remove", ""); !slices.Equal(got, []string{"harbour", "dinghy"}) {
		t.Errorf("nodes remove is completed by %q", got)
	}
}
