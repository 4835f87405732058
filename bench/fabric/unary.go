package main

import (
	"context"
	"time"

	"github.com/outboard-run/outboard/bench/paired"
)

// The topologies of calls on one machine.
const (
	direct    = "shared memory"
	managed   = "shared memory, managed"
	borrowed  = "shared memory, borrowed"
	lent      = "shared memory, managed, borrowed"
	plain     = "grpc-go"
	proxied   = "grpc-go through a proxy"
	enveloped = "grpc-go through Envoy"
	floor     = "raw unix sockets"
)

// echoTopology starts an echo server behind a process of the role between, unless that is empty.
func (f *processGroup) echoTopology(ctx context.Context, name, file, stack, between string) (*topology, error) {
	w := &topology{name: name}
	target := f.bench.socket(file)
	if err := w.add(ctx, f, spec{Role: roleServer, Name: file + "-server", Stack: stack, App: "echo", Listen: target}); err != nil {
		return nil, err
	}
	if between != "" {
		behind := map[string][]string{"grpc.testing.TestService": {target}}
		target = f.bench.socket(file + "-middle")
		if err := w.add(ctx, f, spec{Role: between, Name: file + "-middle", Listen: target, Targets: behind, Policies: threePolicies, Envoy: f.bench.envoy}); err != nil {
			return nil, err
		}
	}
	client := spec{Role: roleClient, Name: file + "-client", Stack: stack, Targets: map[string][]string{"": {target}}}
	err := w.addClient(ctx, f, client)
	return w, err
}

// localTopologies starts the topologies of one machine. Topologies with borrowed bytes are among
// them only for large messages: for others they make no difference.
func (f *processGroup) localTopologies(ctx context.Context, size int) ([]*topology, error) {
	list := []struct{ name, file, stack, between string }{
		{direct, "direct", stackFabric, ""},
		{plain, "grpc", stackGRPC, ""},
		{managed, "managed", stackFabric, roleManaged},
		{proxied, "proxied", stackGRPC, roleProxy},
		{floor, "raw", stackRaw, ""},
	}
	if _, ok := envoyBinary(); ok {
		list = append(list, struct{ name, file, stack, between string }{enveloped, "envoy", stackGRPC, roleEnvoy})
	}
	if size == large {
		list = append(list, []struct{ name, file, stack, between string }{
			{borrowed, "lent", stackBorrowed, ""},
			{lent, "lentm", stackBorrowed, roleManaged},
		}...)
	}
	var topologies []*topology
	for _, s := range list {
		w, err := f.echoTopology(ctx, s.name, s.file, s.stack, s.between)
		if err != nil {
			return nil, err
		}
		topologies = append(topologies, w)
	}
	return topologies, nil
}

// large is the size for which there are also rows with borrowed bytes.
const large = 256 << 10

// unary measures unary calls on one machine, one in flight.
func (b *bench) unary(ctx context.Context, size int) error {
	return b.withProcesses(func(f *processGroup) error {
		topologies, err := f.localTopologies(ctx, size)
		if err != nil {
			return err
		}
		l := load{Call: "echo", Size: size, InFlight: 1, Seconds: b.Turn(time.Second, 300*time.Millisecond).Seconds()}
		all, err := turns(ctx, b.Rounds(7, 3), l, topologies...)
		if err == nil {
			b.compare(all, unaryRows(size)...)
			b.compareEnvoy(all, size)
		}
		return err
	})
}

func unaryTitle(size int) string {
	return map[int]string{64: "unary 64 B", 4 << 10: "unary 4 KiB", large: "unary 256 KiB"}[size]
}

func (b *bench) compareEnvoy(all runs, size int) {
	if len(all[enveloped]) > 0 {
		b.compare(all, comparison{unaryTitle(size) + ", three policies in the managed process", "us", managed, enveloped, p50, paired.Goal{}})
	}
}

func unaryRows(size int) []comparison {
	title := unaryTitle(size)
	wanted := map[string]paired.Goal{}
	switch size {
	case 64:
		wanted = map[string]paired.Goal{"direct": {MaxRatio: 0.2}, "proxied": {MaxRatio: 0.2}, "plain": {MaxRatio: 1}}
	case large:
		wanted = map[string]paired.Goal{"proxied": {MaxRatio: 0.05}}
	}
	return append(borrowedRows(title, size), []comparison{
		{title + ", shared memory, no policy", "us", direct, plain, p50, wanted["direct"]},
		{title + ", shared memory, no policy", "us", direct, floor, p50, paired.Goal{}},
		{title + ", three policies in the managed process", "us", managed, proxied, p50, wanted["proxied"]},
		{title + ", three policies in the managed process", "us", managed, plain, p50, wanted["plain"]},
		{title + ", shared memory, no policy: CPU per call", "us", direct, plain, cpuEach, paired.Goal{}},
		{title + ", three policies: CPU per call", "us", managed, proxied, cpuEach, paired.Goal{}},
		{title + ", shared memory, no policy: context switches per call", "", direct, plain, sleeps, paired.Goal{}},
		{title + ", three policies: context switches per call", "", managed, proxied, sleeps, paired.Goal{}},
	}...)
}

func borrowedRows(title string, size int) []comparison {
	if size != large {
		return nil
	}
	return []comparison{
		{title + ", borrowed bytes, no policy", "us", borrowed, floor, p50, paired.Goal{}},
		{title + ", borrowed bytes, three policies in the managed process", "us", lent, proxied, p50, paired.Goal{MaxRatio: 0.05}},
		{title + ", borrowed bytes, three policies: CPU per call", "us", lent, proxied, cpuEach, paired.Goal{}},
		{title + ", borrowed bytes, three policies: context switches per call", "", lent, proxied, sleeps, paired.Goal{}},
	}
}
