package main

import (
	"context"
	"fmt"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// The topologies of calls over the network.
const (
	secure      = "fabric, TCP with TLS"
	securePlain = "grpc-go with TLS"
)

// tlsTopology starts a server for TCP with TLS 1.3, and its client.
func (f *processGroup) tlsTopology(ctx context.Context, name, file, stack string, id *identity) (*topology, error) {
	w := &topology{name: name}
	listen := spec{Role: roleServer, Name: file + "-server", Stack: stack, App: "echo", Listen: "tcp:127.0.0.1:0", Identity: id}
	if err := w.add(ctx, f, listen); err != nil {
		return nil, err
	}
	to := map[string][]string{"": {w.others[0].addr}}
	err := w.addClient(ctx, f, spec{Role: roleClient, Name: file + "-client", Stack: stack, Targets: to, Identity: id})
	return w, err
}

func (f *processGroup) tlsTopologies(ctx context.Context) ([]*topology, error) {
	id, err := newIdentity()
	if err != nil {
		return nil, err
	}
	ours, err := f.tlsTopology(ctx, secure, "tls", stackFabric, id)
	if err != nil {
		return nil, err
	}
	theirs, err := f.tlsTopology(ctx, securePlain, "grpc-tls", stackGRPC, id)
	return []*topology{ours, theirs}, err
}

// network measures calls over TCP with TLS. The goal of 1.5 times as many calls per second is two
// thirds of the time per call.
func (b *bench) network(ctx context.Context, inFlight int) error {
	return b.withProcesses(func(f *processGroup) error {
		topologies, err := f.tlsTopologies(ctx)
		if err != nil {
			return err
		}
		l := load{Call: "echo", Size: 64, InFlight: inFlight, Seconds: b.Turn(time.Second, 300*time.Millisecond).Seconds()}
		all, err := turns(ctx, b.Rounds(7, 3), l, topologies...)
		if err != nil {
			return err
		}
		title, wanted := fmt.Sprintf("TCP with TLS, 64 B, %d in flight: ", inFlight), paired.Goal{MaxRatio: 0.667}
		b.compare(all,
			comparison{title + "time per call", "us", secure, securePlain, perCall, wanted},
			comparison{title + "CPU per call", "us", secure, securePlain, cpuEach, wanted})
		return nil
	})
}
