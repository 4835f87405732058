package cli_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// fakePool serves the part of a node's API that is about devices and leases. The node is harbour and
// has a device, dinghy one behind a measured network, buoy one behind another. Nobody gets a lease.
// The lock is that of the fakeNode.
type fakePool struct {
	devices  []client.Device
	problems []client.HealthProblem
	requests []client.LeaseRequest
}

func (f *fakePool) register(handle func(string, func(*http.Request) (any, error))) {
	for _, node := range []outboard.NodeID{"harbour", "dinghy", "buoy"} {
		f.devices = append(f.devices, client.Device{Device: outboard.Device{
			ID: outboard.DeviceID(node + "/opencl/0"), Node: node, API: outboard.OpenCL, Type: outboard.GPU, Name: "Fake GPU", Memory: 4 << 30,
		}})
	}
	handle("GET /v1/status", func(*http.Request) (any, error) { return client.Status{Node: "harbour", Problems: f.problems}, nil })
	handle("GET /v1/devices", func(r *http.Request) (any, error) {
		var s outboard.Selector
		err := s.Set(r.URL.Query().Get("selector"))
		return slices.DeleteFunc(slices.Clone(f.devices), func(d client.Device) bool { return !s.Match(d.Device) }), err
	})
	links := []client.Link{
		{From: "harbour", To: "dinghy", RTT: time.Millisecond, MinRTT: 900 * time.Microsecond, Forward: 125e6, Backward: 125e6, Samples: 9},
		{From: "dinghy", To: "buoy", RTT: 2 * time.Millisecond, Samples: 9},
	}
	handle("GET /v1/network", func(*http.Request) (any, error) { return links, nil })
	handle("GET /v1/network/nearest", func(*http.Request) (any, error) { return links[:1], nil })
	handle("POST /v1/leases", func(r *http.Request) (any, error) {
		var request client.LeaseRequest
		if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
			return nil, err
		}
		f.requests = append(f.requests, request)
		return nil, outboard.Errorf(outboard.Busy, "", "all devices that match are leased")
	})
}

// keep keeps only the devices of some nodes.
func (f *fakePool) keep(nodes string) {
	f.devices = slices.DeleteFunc(f.devices, func(d client.Device) bool { return !strings.Contains(nodes, string(d.Node)) })
}
