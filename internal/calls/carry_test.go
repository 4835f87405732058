package calls_test

import (
	"testing"

	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/calls/callstest"
)

// counted is how many calls of the test's service the node says have been made.
func (s *station) counted() (table, metrics uint64) {
	rows, err := s.Table(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range rows {
		table += r.Total
	}
	families, err := s.Gather()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "outboard_fabric_calls_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			metrics += uint64(m.GetCounter().GetValue())
		}
	}
	return table, metrics
}

// What policies have taken is taken in the next process too, and what was counted is
// counted on.
func TestUpgradesCarryPoliciesAndCounts(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	harbour.serve(callstest.Echo{})
	c := harbour.dial()
	ready(t, map[string]testgrpc.TestServiceClient{"client": c})
	const text = "policies:\n- name: few\n  services: [grpc.testing.TestService]\n  methods: [UnaryCall]\n  rate: {rate: 1/h, burst: 4}\n"
	if _, err := harbour.registry.Apply(t.Context(), "test.yaml", text); err != nil {
		t.Fatal(err)
	}
	await(t, "the policies are in force", func() bool {
		list, err := harbour.Policies(t.Context())
		return err == nil && len(list) == 1
	})
	began, _ := harbour.counted()
	for n, want := range []codes.Code{codes.OK, codes.OK, codes.OK, codes.OK, codes.ResourceExhausted, codes.ResourceExhausted} {
		if _, err := c.UnaryCall(t.Context(), &testgrpc.SimpleRequest{}); status.Code(err) != want {
			t.Errorf("call %d: %v", n, err)
		}
		if n%2 == 0 {
			if _, err := harbour.Upgrade(t.Context(), ""); err != nil {
				t.Fatal(err)
			}
		}
		if table, metrics := harbour.counted(); table != began+uint64(n)+1 || metrics != table {
			t.Errorf("after call %d: %d in the table, %d in the metrics, want %d", n, table, metrics, began+uint64(n)+1)
		}
	}
	await(t, "one process", func() bool { return len(harbour.Processes()) == 1 })
	if table, metrics := harbour.counted(); table != began+6 || metrics != table {
		t.Errorf("at the end: %d in the table, %d in the metrics, want %d", table, metrics, began+6)
	}
	list, err := harbour.Policies(t.Context())
	if err != nil || len(list) != 1 || list[0].Calls != 6 || list[0].Refused != 2 {
		t.Errorf("policies: %+v, %v", list, err)
	}
}

// Counts never fall while processes follow each other and calls flow.
func TestCountsNeverFall(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	harbour.serve(callstest.Echo{})
	clients := map[string]testgrpc.TestServiceClient{"same node": harbour.dial(), "gRPC": harbour.dialPlain()}
	ready(t, clients)
	f := newTraffic(t, clients)
	f.flows()
	var before struct{ table, metrics uint64 }
	look := func() {
		table, metrics := harbour.counted()
		if table < before.table || metrics < before.metrics {
			t.Errorf("counts fell from %+v to %d, %d", before, table, metrics)
		}
		before.table, before.metrics = table, metrics
	}
	for range 4 {
		if _, err := harbour.Upgrade(t.Context(), ""); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			look()
		}
		f.flows()
	}
	f.end()
	await(t, "one process", func() bool { return len(harbour.Processes()) == 1 })
	look()
}

// A stream of plain gRPC, which can't move, keeps its place under a limit while it is in
// the old process.
func TestLimitsCountCallsOfTheOldProcess(t *testing.T) {
	p := newPool(t)
	harbour := p.station("harbour")
	harbour.serve(callstest.Echo{})
	c, plain := harbour.dial(), harbour.dialPlain()
	ready(t, map[string]testgrpc.TestServiceClient{"client": c, "gRPC": plain})
	const text = "policies:\n- name: one\n  services: [grpc.testing.TestService]\n  concurrency: {limit: 1}\n"
	if _, err := harbour.registry.Apply(t.Context(), "test.yaml", text); err != nil {
		t.Fatal(err)
	}
	await(t, "the policies are in force", func() bool {
		list, err := harbour.Policies(t.Context())
		return err == nil && len(list) == 1
	})
	s, err := plain.FullDuplexCall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	chat := func() {
		if err := s.Send(&testgrpc.StreamingOutputCallRequest{Payload: callstest.Payload(1, 0)}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Recv(); err != nil {
			t.Fatal(err)
		}
	}
	chat()
	call := func() codes.Code { return status.Code(callstest.Call(t.Context(), c, 1, 0)) }
	if code := call(); code != codes.ResourceExhausted {
		t.Fatalf("beside a stream: %v", code)
	}
	if _, err := harbour.Upgrade(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	await(t, "the next process knows of the stream", func() bool { return call() == codes.ResourceExhausted })
	chat()
	if err := s.CloseSend(); err != nil {
		t.Fatal(err)
	}
	await(t, "its place is free", func() bool { return call() == codes.OK })
}
