package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard/bench/netem"
	"github.com/outboard-run/outboard/bench/rig"
	"github.com/outboard-run/outboard/client"
)

// nodeNames are the names of a pool's nodes, the founder first.
//
//nolint:gochecknoglobals // a table
var nodeNames = []string{"harbour", "dinghy", "ketch", "yawl"}

// A pool is a running pool with the addresses of its interfaces.
type pool struct {
	*rig.Rig
	dir   string
	names []string
	urls  []string // base URLs of HTTP, by node
	grpcs []string // addresses for gRPC, by node
}

// start starts a pool of count nodes. Connections to the first node use link unless it is nil.
func (b *bench) start(ctx context.Context, count int, link *netem.Link) (*pool, error) {
	return b.startLinked(ctx, count, func(i int) *netem.Link {
		if i == 0 {
			return link
		}
		return nil
	})
}

// startLinked starts a pool of count nodes. Connections to node i use the link that link returns.
func (b *bench) startLinked(ctx context.Context, count int, link func(i int) *netem.Link) (*pool, error) {
	dir, err := os.MkdirTemp(b.Dir, "pool")
	if err != nil {
		return nil, err
	}
	p := &pool{dir: dir, names: nodeNames[:count]}
	opts := rig.Options{Binary: b.binary, Dir: filepath.Join(dir, "nodes"), Loopback: true}
	for i, name := range p.names {
		opts.Nodes = append(opts.Nodes, rig.Spec{
			Name: name, Devices: "none", Link: link(i), Args: []string{"--http", "127.0.0.1:0", "--grpc", "none", "--models", "127.0.0.1:0"},
		})
	}
	if p.Rig, err = rig.Start(ctx, opts); err != nil {
		return nil, err
	}
	for i := range p.names {
		if err := p.findURL(ctx, i); err != nil {
			_ = p.Close()
			return nil, err
		}
	}
	return p, nil
}

// findURL requests the addresses of a node's ports for HTTP and for models.
func (p *pool) findURL(ctx context.Context, i int) error {
	status, err := (&client.Client{Data: p.Node(p.names[i]).Data()}).Status(ctx)
	if err != nil {
		return err
	}
	for len(p.urls) <= i {
		p.urls, p.grpcs = append(p.urls, ""), append(p.grpcs, "")
	}
	p.urls[i], p.grpcs[i] = "http://"+status.HTTP, status.Models
	return nil
}

// push pushes a model at the first node and waits until it is loaded.
func (p *pool) push(ctx context.Context, name, file, config string, flags ...string) error {
	path := filepath.Join(p.dir, name+".yaml")
	if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
		return err
	}
	args := append([]string{"models", "push", name, file, "--config", path}, flags...)
	_, err := p.Node(p.names[0]).Output(ctx, args...)
	return err
}

// repository calls an operation of the repository on one node: load, unload.
func (p *pool) repository(ctx context.Context, node int, name, operation string) error {
	err := post(ctx, p.urls[node]+"/v2/repository/models/"+name+"/"+operation, nil, []byte("{}"))
	return err
}

// lines joins the lines of a configuration.
func lines(list ...string) string { return strings.Join(list, "\n") + "\n" }
