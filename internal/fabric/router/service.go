package router

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

var errClosed = errors.New("router: closed")

// A Service is the set of endpoints that serve a service, and the balancing of calls over them.
type Service struct {
	Endpoints []Endpoint
	Balance   balance.Config
}

// An Endpoint is one back end and its transport. The Value of the embedded endpoint is not
// used.
type Endpoint struct {
	balance.Endpoint
	Transport call.Transport
	// ReleasesContext reports that Transport's Unary retains neither the call's head, its metadata nor
	// an unwaited context when it returns: the router may reuse their memory.
	ReleasesContext bool
	// Forwards reports that Transport reaches the callee through another process, or over a connection
	// that it has yet to make, so that a stream may turn out to be unsent (see call.Unary) after it was
	// opened: its Recv returns such an error before the callee's header. The router keeps the messages
	// of its streams for another endpoint until the callee begins to answer, up to a bound.
	Forwards bool
	// Reports, unless nil, is the source of out-of-band load reports.
	Reports Reports
	// Released, unless nil, is called once, when the endpoint has been removed and its last
	// call has ended: the transport may be closed.
	Released func()
}

// service is a service as the calls see it.
type service struct {
	name      string
	config    balance.Config
	picker    balance.Picker
	endpoints map[string]*endpoint // under Router.mu
	retired   []*endpoint          // under Router.mu: replaced, but not removed yet
}

// serviceOf returns the existing service, or a new service that takes over its endpoints when the
// balancing changes.
func serviceOf(name string, set Service, before *service) (*service, error) {
	for _, e := range set.Endpoints {
		if e.ID == "" || e.Transport == nil {
			return nil, fmt.Errorf("router: service %s: endpoint %q has no ID or no transport", name, e.ID)
		}
	}
	if before != nil && sameBalance(before.config, set.Balance) {
		return before, nil
	}
	picker, err := balance.New(set.Balance)
	if err != nil {
		return nil, fmt.Errorf("router: service %s: %w", name, err)
	}
	s := &service{name: name, config: set.Balance, picker: picker, endpoints: map[string]*endpoint{}}
	if before != nil {
		s.endpoints = before.endpoints
	}
	return s, nil
}

func sameBalance(a, b balance.Config) bool {
	if reflect.ValueOf(a.Random).Pointer() != reflect.ValueOf(b.Random).Pointer() {
		return false
	}
	a.Random, b.Random = nil, nil
	return reflect.DeepEqual(a, b)
}

// replace makes set the service's endpoints. The caller holds Router.mu.
func (s *service) replace(r *Router, set []Endpoint) {
	before := s.endpoints
	s.endpoints = make(map[string]*endpoint, len(set))
	list := make([]balance.Endpoint, 0, len(set))
	for _, e := range set {
		if s.endpoints[e.ID] != nil {
			continue
		}
		known := before[e.ID]
		if known == nil || known.transport != e.Transport {
			known = newEndpoint(e)
		} else {
			delete(before, e.ID)
		}
		known.picker.Store(&s.picker)
		s.endpoints[e.ID] = known
		e.Value = known
		list = append(list, e.Endpoint)
	}
	s.picker.Update(list, time.Now())
	for _, e := range s.endpoints {
		if e.stop == nil {
			e.watch(r)
		}
	}
	s.retired = slices.AppendSeq(s.retired, maps.Values(before))
}

// retire removes the endpoints that were replaced. The caller holds Router.mu.
func (s *service) retire() {
	for _, e := range s.retired {
		e.remove()
	}
	s.retired = nil
}

// endpoint is an endpoint as the calls see it.
type endpoint struct {
	id        string
	transport call.Transport
	unary     call.Unary // nil if the transport provides streams only
	forgets   bool
	forwards  bool
	reports   Reports
	released  func()
	stop      context.CancelFunc // stops the watch of reports; under Router.mu
	picker    atomic.Pointer[balance.Picker]

	calls    atomic.Int64 // calls in flight, plus removed after the removal
	reported atomic.Int64 // when a report was last parsed, in ns
	good     atomic.Uint64
	bad      atomic.Uint64
}

// removed is added to an endpoint's calls when it is removed.
const removed = 1 << 40

func newEndpoint(e Endpoint) *endpoint {
	unary, _ := e.Transport.(call.Unary)
	return &endpoint{id: e.ID, transport: e.Transport, unary: unary, forgets: e.ReleasesContext, forwards: e.Forwards, reports: e.Reports, released: e.Released}
}

// acquire counts a call, unless the endpoint has been removed.
func (e *endpoint) acquire() bool {
	if e.calls.Add(1) < removed {
		return true
	}
	e.release()
	return false
}

// release uncounts a call.
func (e *endpoint) release() {
	if e.calls.Add(-1) == removed {
		e.finish()
	}
}

// remove prevents new calls; calls in flight end normally.
func (e *endpoint) remove() {
	e.stop()
	if e.calls.Add(removed) == removed {
		e.finish()
	}
}

// finish calls released after the last call of a removed endpoint. A late acquire that finds the
// endpoint removed may run it again; the compare-and-swap succeeds once.
func (e *endpoint) finish() {
	if e.calls.CompareAndSwap(removed, 2*removed) && e.released != nil {
		e.released()
	}
}
