package services_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/pool/state/statetest"
)

// members is who is in the pool, by hand.
type members struct {
	mu    sync.Mutex
	boots map[outboard.NodeID]string
}

func (m *members) Node(id outboard.NodeID) (outboard.Node, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	boot, ok := m.boots[id]
	return outboard.Node{ID: id, Boot: boot}, ok
}

func (m *members) Nodes() []outboard.Node { return nil }

func (m *members) Changed() <-chan struct{} { return nil }

func (m *members) set(id outboard.NodeID, boot string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.boots[id] = boot
}

func open(t *testing.T, s *state.State, m *members, self outboard.NodeID) *services.Registry {
	t.Helper()
	m.set(self, "1")
	r, err := services.Open(t.Context(), services.Options{State: s, Members: m, Self: self, Boot: "1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Close() })
	return r
}

func eventually(t *testing.T, r *services.Registry, what string, f func() bool) {
	t.Helper()
	statetest.Eventually(t, r.Changed, what, f)
}

func ids(r *services.Registry) []string {
	var all []string
	for _, e := range r.Endpoints() {
		all = append(all, e.ID)
	}
	return all
}

func TestEndpoints(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	a, b := open(t, s, m, "harbour"), open(t, s, m, "dinghy")
	offer := func(r *services.Registry, id string) {
		t.Helper()
		if err := r.Offer(t.Context(), services.Endpoint{ID: id, Services: []string{"shop.Cart"}}); err != nil {
			t.Fatal(err)
		}
	}
	offer(a, "harbour/1")
	offer(a, "harbour/2")
	offer(b, "dinghy/1")
	eventually(t, b, "three endpoints", func() bool { return len(ids(b)) == 3 })
	if err := a.Withdraw(t.Context(), "harbour/1"); err != nil {
		t.Fatal(err)
	}
	eventually(t, b, "one is withdrawn", func() bool { return cmp.Equal(ids(b), []string{"dinghy/1", "harbour/2"}) })
	m.set("harbour", "2") // it started again and has offered nothing yet
	if diff := cmp.Diff([]string{"dinghy/1"}, ids(b)); diff != "" {
		t.Errorf("endpoints of an earlier boot count: %s", diff)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, a, "those of a registry that was closed are gone", func() bool { return len(ids(a)) == 0 })
}

// TestFailedWithdrawal has a withdrawal that the table does not take in time: it is repeated, with
// what the node offers by then.
func TestFailedWithdrawal(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	a, b := open(t, s, m, "harbour"), open(t, s, m, "dinghy")
	for _, id := range []string{"harbour/1", "harbour/2"} {
		if err := a.Offer(t.Context(), services.Endpoint{ID: id, Services: []string{"shop.Cart"}}); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := a.Withdraw(ended, "harbour/1"); err == nil {
		t.Error("a withdrawal without time has succeeded")
	}
	if err := a.Offer(ended, services.Endpoint{ID: "harbour/3", Services: []string{"shop.Cart"}}); err == nil {
		t.Error("an offer without time has succeeded")
	}
	eventually(t, b, "one endpoint", func() bool { return cmp.Equal(ids(b), []string{"harbour/2"}) })
}

// TestAdded covers the servers that an operator adds: one endpoint per address, which
// outlives restarts, until it is removed.
func TestAdded(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	a, other := open(t, s, m, "harbour"), open(t, s, m, "dinghy")
	add := func(address string, weight int, names ...string) services.Endpoint {
		t.Helper()
		e, err := a.Add(t.Context(), services.Endpoint{Address: address, Weight: weight, Services: names})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	first := add("127.0.0.1:1", 3, "shop.Cart")
	again := add("127.0.0.1:1", 0, "shop.Search", "shop.Cart")
	if again.ID != first.ID || again.Weight != 3 || !cmp.Equal(again.Services, []string{"shop.Cart", "shop.Search"}) {
		t.Errorf("added twice: %+v, want one endpoint of weight 3 with both services", again)
	}
	add("127.0.0.1:2", 0, "shop.Cart")
	if err := a.Offer(t.Context(), services.Endpoint{ID: "harbour/7", Services: []string{"shop.Cart"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, other, "three endpoints", func() bool { return len(ids(other)) == 3 })
	eventually(t, a, "three endpoints of its own", func() bool { return len(ids(a)) == 3 })
	for name, kind := range map[string]outboard.Kind{
		"127.0.0.1:3": outboard.NotFound, "harbour/9": outboard.NotFound, "": outboard.NotFound, "harbour/7": outboard.Conflict,
	} {
		if err := a.Remove(t.Context(), name); outboard.KindOf(err) != kind {
			t.Errorf("remove %q: %v, want %v", name, err, kind)
		}
	}
	if err := other.Remove(t.Context(), "127.0.0.1:1"); outboard.KindOf(err) != outboard.Conflict {
		t.Errorf("remove another node's: %v", err)
	}
	if err := a.Remove(t.Context(), "127.0.0.1:2"); err != nil {
		t.Fatal(err)
	}
	eventually(t, other, "one is removed", func() bool { return cmp.Equal(ids(other), []string{"harbour/127.0.0.1:1", "harbour/7"}) })
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	eventually(t, other, "the node is down", func() bool { return len(ids(other)) == 0 })
	open(t, s, m, "harbour")
	eventually(t, other, "what was added is there again", func() bool { return cmp.Equal(ids(other), []string{first.ID}) })
}

func TestPolicies(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	a, b := open(t, s, m, "harbour"), open(t, s, m, "dinghy")
	text := func() string {
		if v := b.Policies().Current(); v != nil {
			return v.Text
		}
		return ""
	}
	if _, err := a.Rollback(t.Context()); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("roll back of nothing: %v", err)
	}
	for _, version := range []string{"one", "two", "three"} {
		if _, err := a.Apply(t.Context(), "file", version); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, b, "the third is in force", func() bool { return text() == "three" })
	for _, want := range []string{"two", "one"} {
		if v, err := b.Rollback(t.Context()); err != nil || v.Text != want {
			t.Fatalf("got %q, %v, want %q", v.Text, err, want)
		}
		eventually(t, b, want+" is in force again", func() bool { return text() == want })
	}
	if _, err := b.Rollback(t.Context()); outboard.KindOf(err) != outboard.NotFound {
		t.Errorf("roll back beyond the first: %v", err)
	}
	if _, err := a.Apply(t.Context(), "file", string(make([]byte, services.MaxPolicies+1))); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("too long a text: %v", err)
	}
}

// Large texts leave room for fewer versions, and for the last one always.
func TestLargePolicies(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	r := open(t, s, m, "harbour")
	for range 5 {
		if _, err := r.Apply(t.Context(), "file", strings.Repeat("x", services.MaxPolicies)); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, r, "the last is there", func() bool { v := r.Policies().Current(); return v != nil && v.Number == 5 })
	if n := len(r.Policies().Versions); n < 2 || n > 3 {
		t.Errorf("%d versions are kept", n)
	}
}

func TestDescribe(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	r := open(t, s, m, "harbour")
	const service = "grpc.testing.TestService"
	files := closure(grpc_testing.File_grpc_testing_test_proto)
	if err := r.Describe(t.Context(), service, files); err != nil {
		t.Fatal(err)
	}
	eventually(t, r, "it is described", func() bool { return r.Service(service) != nil })
	if d := r.Service(service); d.Methods().ByName("UnaryCall") == nil {
		t.Error("the service has lost a method")
	}
	if err := r.Describe(t.Context(), "grpc.testing.NoService", files); outboard.KindOf(err) != outboard.Invalid {
		t.Errorf("a service that the files do not have: %v", err)
	}
	if r.Service("grpc.testing.NoService") != nil || !cmp.Equal(r.Described(), []string{service}) {
		t.Error("knows what it was not told")
	}
}

func TestServiceIsResolvedOnce(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{}}
	r := open(t, s, m, "harbour")
	const service, method = "grpc.testing.TestService", "UnaryCall"
	has := func() bool { d := r.Service(service); return d != nil && d.Methods().ByName(method) != nil }
	files := closure(grpc_testing.File_grpc_testing_test_proto)
	if err := r.Describe(t.Context(), service, files); err != nil {
		t.Fatal(err)
	}
	eventually(t, r, "it is described", has)
	if r.Service(service) != r.Service(service) {
		t.Error("the description was resolved for each look-up")
	}
	for _, file := range files.GetFile() {
		for _, d := range file.GetService() {
			d.Method = slices.DeleteFunc(d.GetMethod(), func(m *descriptorpb.MethodDescriptorProto) bool { return m.GetName() == method })
		}
	}
	if err := r.Describe(t.Context(), service, files); err != nil {
		t.Fatal(err)
	}
	eventually(t, r, "it is described anew", func() bool { return r.Service(service) != nil && !has() })
}

// closure is a file with all that it imports.
func closure(file protoreflect.FileDescriptor) *descriptorpb.FileDescriptorSet {
	set, seen := &descriptorpb.FileDescriptorSet{}, map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(file)
	return set
}

// A joined node writes a time that can be read and not be written again: no list has it.
func TestTimesOfHostileNodes(t *testing.T) {
	s, m := statetest.Open(t), &members{boots: map[outboard.NodeID]string{"dinghy": "1"}}
	r := open(t, s, m, "harbour")
	text := `{"boot":"1","endpoints":[{"id":"dinghy/1","node":"dinghy","services":["shop.Cart"],"started":"2026-01-01T00:00:00+24:00"}]}`
	if _, err := s.Put(t.Context(), "endpoints/dinghy", []byte(text), 0); err != nil {
		t.Fatal(err)
	}
	if err := r.Offer(t.Context(), services.Endpoint{ID: "harbour/1", Services: []string{"shop.Cart"}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, r, "the later endpoint", func() bool { return slices.Contains(ids(r), "harbour/1") })
	if all := r.Endpoints(); len(all) != 1 {
		t.Errorf("endpoints %+v", all)
	}
}
