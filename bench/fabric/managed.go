package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/outboard-run/outboard/internal/fabric/balance"
	"github.com/outboard-run/outboard/internal/fabric/policy"
	"github.com/outboard-run/outboard/internal/fabric/router"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// threePolicies are the policies of the proxy: an access list, a token bucket, and for the counter
// (all calls are counted by method, peer and policy anyway) a limit for the calls in flight, which
// counts them up and down.
const threePolicies = `
policies:
  - name: who
    access: {default: deny, rules: [{allow: {services: ["grpc.testing.*", "outboard.bench.*"], tenants: ["uid:*"]}}]}
  - name: how-often
    rate: {rate: 1000000/s, burst: 1000000}
  - name: how-many
    concurrency: {limit: 1000000}
`

// A manager is the managed process: a router between applications that share memory
// with it.
type manager struct {
	router   *router.Router
	services map[string][]router.Endpoint
	conns    []*shared.Conn
}

func (a *actor) managed(ctx context.Context) error {
	m := &manager{router: router.New(router.Options{}), services: map[string][]router.Endpoint{}}
	ctx, cancel := context.WithCancel(ctx)
	l, err := m.prepare(ctx, &a.spec)
	if err != nil {
		cancel()
		return errors.Join(err, m.close())
	}
	served := make(chan error, 1)
	a.addr, a.close = a.spec.Listen, func() error {
		cancel()
		return errors.Join(<-served, m.close())
	}
	go func() { served <- l.Serve(ctx, func(*shared.Conn) error { return nil }) }()
	a.commands["balance"] = decodeArgs(func(_ context.Context, name string) (any, error) { return true, m.balance(balances()[name]) })
	a.commands["swap"] = decodeArgs(func(ctx context.Context, s swapping) (any, error) { return m.swap(ctx, s) })
	return nil
}

func (m *manager) prepare(ctx context.Context, s *spec) (*shared.Listener, error) {
	set, err := policy.Parse(s.Name+".yaml", []byte(s.Policies), nil)
	if err != nil {
		return nil, err
	}
	m.router.SetPolicies(set)
	for service, targets := range s.Targets {
		for i, target := range targets {
			c, err := shared.Dial(ctx, strings.TrimPrefix(target, "unix:"), shared.Options{})
			if err != nil {
				return nil, fmt.Errorf("dial %s: %w", target, err)
			}
			m.conns = append(m.conns, c)
			m.services[service] = append(m.services[service], router.Endpoint{Endpoint: balance.Endpoint{ID: fmt.Sprint(i)}, Transport: c})
		}
	}
	if err := m.balance(balance.Config{}); err != nil {
		return nil, err
	}
	return shared.Listen(strings.TrimPrefix(s.Listen, "unix:"), shared.Options{Handler: m.router})
}

// balance sets the balancing of all services to c.
func (m *manager) balance(c balance.Config) error {
	for name, endpoints := range m.services {
		if err := m.router.SetService(name, router.Service{Endpoints: endpoints, Balance: c}); err != nil {
			return err
		}
	}
	return nil
}

func (m *manager) close() error {
	errs := []error{m.router.Close()}
	for _, c := range m.conns {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// A swapping asks a process to put sets of policies in force in turn.
type swapping struct {
	Sets  []string
	Swaps int
	// Upgrades is the number of times that a node's process is replaced meanwhile.
	Upgrades int
	Seconds  float64
}

// swap puts the sets in force in turn, and returns the number of swaps.
func (m *manager) swap(ctx context.Context, s swapping) (int, error) {
	sets := make([]*policy.Set, len(s.Sets))
	for i, text := range s.Sets {
		var err error
		if sets[i], err = policy.Parse(fmt.Sprintf("set%d.yaml", i), []byte(text), nil); err != nil {
			return 0, err
		}
	}
	return spread(ctx, s.Swaps, s.Seconds, func(i int) error {
		m.router.SetPolicies(sets[i%len(sets)])
		return nil
	})
}
