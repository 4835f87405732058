package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/outboard-run/outboard/fabric"
)

// maxMessage is the limit for messages, on all stacks.
const maxMessage = 64 << 20

// A conn is a connection for generated stubs.
type conn interface {
	grpc.ClientConnInterface
	io.Closer
}

// dial connects to target on a stack. It need not wait for the connection.
func dial(stack, target string, id *identity) (conn, error) {
	config, err := id.tls()
	if err != nil {
		return nil, err
	}
	if stack == stackFabric || stack == stackBorrowed {
		return fabric.Dial(target, fabric.WithTLS(config), fabric.WithMaxReceive(maxMessage))
	}
	c := insecure.NewCredentials()
	if config != nil {
		c = credentials.NewTLS(config)
	}
	if addr, ok := strings.CutPrefix(target, "tcp:"); ok {
		target = "passthrough:///" + addr
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(c), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessage)))
}

// serve serves on a stack until stop. It returns the target to dial.
func serve(ctx context.Context, s *spec, register func(grpc.ServiceRegistrar)) (target string, stop func() error, err error) {
	if s.Stack == stackFabric || s.Stack == stackBorrowed {
		return serveFabric(ctx, s, register)
	}
	var o []grpc.ServerOption
	if config, err := s.Identity.tls(); err != nil {
		return "", nil, err
	} else if config != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(config)))
	}
	server := grpc.NewServer(append(o, grpc.MaxRecvMsgSize(maxMessage))...)
	register(server)
	return serveGRPC(server, s.Listen)
}

// serveGRPC serves with a server of grpc-go.
func serveGRPC(server *grpc.Server, target string) (string, func() error, error) {
	network, addr, _ := strings.Cut(target, ":")
	l, err := net.Listen(network, addr) //nolint:noctx // it does not wait
	if err != nil {
		return "", nil, err
	}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	return network + ":" + l.Addr().String(), func() error {
		server.Stop()
		return <-served
	}, nil
}

func serveFabric(ctx context.Context, s *spec, register func(grpc.ServiceRegistrar)) (string, func() error, error) {
	config, err := s.Identity.tls()
	if err != nil {
		return "", nil, err
	}
	l, err := fabric.Listen(s.Listen, fabric.WithTLS(config), fabric.WithMaxReceive(maxMessage))
	if err != nil {
		return "", nil, err
	}
	options := []fabric.Option{fabric.WithMaxReceive(maxMessage)}
	if s.Stack == stackBorrowed {
		options = append(options, fabric.WithBorrowedRequests())
	}
	server := fabric.NewServer(options...)
	register(server)
	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- server.Run(ctx, l) }()
	scheme, _, _ := strings.Cut(s.Listen, ":")
	return scheme + ":" + l.Addr().String(), func() error {
		cancel()
		err := <-served
		server.Stop()
		return err
	}, nil
}

// server serves an application.
func (a *actor) server(ctx context.Context) (err error) {
	if a.spec.Stack == stackRaw {
		a.addr, a.close, err = serveRaw(a.spec.Listen)
		return err
	}
	app, err := a.app()
	if err != nil {
		return err
	}
	target, stop, err := serve(ctx, &a.spec, app.register)
	if err != nil {
		return errors.Join(err, app.close())
	}
	a.addr, a.close = target, func() error { return errors.Join(stop(), app.close()) }
	return nil
}

// An app is the application that a server serves.
type app struct {
	register func(grpc.ServiceRegistrar)
	close    func() error
}

func (a *actor) app() (app, error) {
	switch a.spec.App {
	case "echo":
		return app{registerEcho, func() error { return nil }}, nil
	case "backend":
		return a.backend(), nil
	}
	if shop, ok := shopApps()[a.spec.App]; ok {
		return shop(&a.spec)
	}
	return app{}, fmt.Errorf("no application %q", a.spec.App)
}
