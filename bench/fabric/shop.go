package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc"

	"github.com/outboard-run/outboard/bench/fabric/hotel"
	"github.com/outboard-run/outboard/bench/paired"
)

// shopApps returns the applications of the web shop, by service.
func shopApps() map[string]func(*spec) (app, error) {
	return map[string]func(*spec) (app, error){
		hotel.FrontendService: func(s *spec) (app, error) {
			return proxyApp(s, hotel.RegisterFrontend, hotel.SearchService, hotel.ProfileService)
		},
		hotel.SearchService: func(s *spec) (app, error) {
			return proxyApp(s, hotel.RegisterSearch, hotel.GeoService, hotel.RateService)
		},
		hotel.GeoService:     func(*spec) (app, error) { return leafApp(hotel.RegisterGeo) },
		hotel.RateService:    func(*spec) (app, error) { return leafApp(hotel.RegisterRate) },
		hotel.ProfileService: func(*spec) (app, error) { return leafApp(hotel.RegisterProfile) },
	}
}

func leafApp(register func(grpc.ServiceRegistrar)) (app, error) {
	return app{register, func() error { return nil }}, nil
}

// proxyApp returns a service that calls two other services.
func proxyApp(s *spec, register func(r grpc.ServiceRegistrar, one, two grpc.ClientConnInterface), one, two string) (app, error) {
	a, err := dial(s.Stack, s.target(one), s.Identity)
	if err != nil {
		return app{}, err
	}
	b, err := dial(s.Stack, s.target(two), s.Identity)
	if err != nil {
		return app{}, errors.Join(err, a.Close())
	}
	return app{
		func(r grpc.ServiceRegistrar) { register(r, a, b) },
		func() error { return closeAll(a, b) },
	}, nil
}

func closeAll(all ...io.Closer) error {
	var errs []error
	for _, c := range all {
		errs = append(errs, c.Close())
	}
	return errors.Join(errs...)
}

// shopServices returns the services in the order in which they start: a service starts after the
// services that it calls.
func shopServices() []string {
	return []string{hotel.GeoService, hotel.RateService, hotel.ProfileService, hotel.SearchService, hotel.FrontendService}
}

// shopTopology starts a shop, and between its services a process of the role between, unless that
// is empty.
func (f *processGroup) shopTopology(ctx context.Context, name, stack, between string) (*topology, error) {
	w := &topology{name: name}
	targets, middle := map[string][]string{}, f.bench.socket(name+"-middle")
	own := map[string][]string{}
	for _, service := range shopServices() {
		own[service] = []string{f.bench.socket(name + "-" + service[len("outboard.bench.hotel."):])}
		targets[service] = own[service]
		if between != "" {
			targets[service] = []string{middle}
		}
	}
	for _, service := range shopServices() {
		s := spec{Role: roleServer, Name: name + "-" + service, Stack: stack, App: service, Listen: own[service][0], Targets: targets}
		if err := w.add(ctx, f, s); err != nil {
			return nil, err
		}
	}
	if between != "" {
		s := spec{Role: between, Name: name + "-middle", Listen: middle, Targets: own, Policies: threePolicies}
		if err := w.add(ctx, f, s); err != nil {
			return nil, err
		}
	}
	front := map[string][]string{"": targets[hotel.FrontendService]}
	err := w.addClient(ctx, f, spec{Role: roleClient, Name: name + "-client", Stack: stack, Targets: front})
	return w, err
}

const (
	shopManaged = "fabric, three policies"
	shopPlain   = "grpc-go, no policies"
	shopProxied = "grpc-go and proxies"
)

// shop measures a customer's request to the web shop: five calls, of which each waits for the
// previous one.
func (b *bench) shop(ctx context.Context) error {
	return b.withProcesses(func(f *processGroup) error {
		var topologies []*topology
		for _, s := range []struct{ name, file, stack, between string }{
			{shopManaged, "shop", stackFabric, roleManaged},
			{shopPlain, "shopgrpc", stackGRPC, ""},
			{shopProxied, "shopproxy", stackGRPC, roleProxy},
		} {
			w, err := f.shopTopology(ctx, s.file, s.stack, s.between)
			if err != nil {
				return err
			}
			w.name = s.name
			topologies = append(topologies, w)
		}
		for _, inFlight := range []int{1, 8} {
			if err := b.shopRows(ctx, inFlight, topologies); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *bench) shopRows(ctx context.Context, inFlight int, topologies []*topology) error {
	l := load{Call: "shop", InFlight: inFlight, Seconds: b.Turn(time.Second, 400*time.Millisecond).Seconds()}
	all, err := turns(ctx, b.Rounds(7, 3), l, topologies...)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("web shop, %d in flight, with policies: ", inFlight)
	wanted := paired.Goal{}
	if inFlight == 1 {
		wanted.MaxRatio = 0.4 // 2.5 times faster
	}
	b.compare(all,
		comparison{title + "p50", "us", shopManaged, shopProxied, p50, wanted},
		comparison{title + "p99", "us", shopManaged, shopProxied, p99, paired.Goal{}},
		comparison{title + "p50", "us", shopManaged, shopPlain, p50, paired.Goal{}},
		comparison{title + "p99", "us", shopManaged, shopPlain, p99, paired.Goal{}},
		comparison{title + "CPU of all processes", "us", shopManaged, shopProxied, cpuEach, paired.Goal{}})
	return nil
}
