package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/lifecycle"
	"github.com/outboard-run/outboard/internal/pool/state"
	"github.com/outboard-run/outboard/internal/tenant"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// A testNode contains the parts of a node that apps need, in this process: the pool's state, a
// complete tenant's process, and a port that hands connections over to it.
type testNode struct {
	config    tenant.Config
	tenant    *tenant.Tenant
	artifacts *artifact.Store
	state     *state.State
	web       *net.TCPListener
	control   http.Client
	node      *ipc.Conn // the node's end of its connection to the tenant

	cancel context.CancelFunc
	done   chan error
}

const stageNode = outboard.NodeID("bench")

// openStage opens a stage in a new folder.
func (b *bench) openStage(ctx context.Context) (*testNode, error) {
	dir, err := os.MkdirTemp(b.Dir, "stage")
	if err != nil {
		return nil, err
	}
	s := &testNode{done: make(chan error, 1), config: tenant.Config{
		Protocol: tenant.Protocol, Tenant: manifest.DefaultTenant, Node: stageNode, Boot: "1",
		Dir: filepath.Join(dir, "tenant"), Artifacts: filepath.Join(dir, "artifacts"), StateSocket: filepath.Join(dir, "state.sock"),
	}}
	if err := s.prepare(dir, b.guests.cache()); err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// prepare creates the folders. Compiled code is shared by all stages.
func (s *testNode) prepare(dir, cache string) (err error) {
	for _, d := range []string{s.config.Dir, filepath.Join(dir, "state"), cache} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return err
		}
	}
	if err := os.Symlink(cache, filepath.Join(s.config.Dir, "compiled")); err != nil {
		return err
	}
	if s.artifacts, err = artifact.Open(artifact.Options{Dir: s.config.Artifacts}); err != nil {
		return err
	}
	s.control.Transport = &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return unixsock.Dial(ctx, s.config.ControlSocket())
	}}
	s.tenant = tenant.New(s.config, tenant.ProcessOptions{})
	return nil
}

func (s *testNode) start(ctx context.Context) error {
	life, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	ready := make(chan struct{})
	go func() {
		s.done <- lifecycle.Run(life, func() { close(ready) },
			lifecycle.Hold("state", s.openState), lifecycle.Func("lend", s.serveState), s.tenant, lifecycle.Func("port", s.serve))
	}()
	select {
	case <-ready:
		err := s.callAPI(ctx, http.MethodPut, "/v1/members", []outboard.Node{{ID: stageNode, Boot: s.config.Boot}}, nil)
		if err != nil {
			err = errors.Join(err, s.close())
		}
		return err
	case err := <-s.done:
		cancel()
		return errors.Join(errors.New("the stage did not come up"), err)
	case <-ctx.Done():
		return errors.Join(ctx.Err(), s.close())
	}
}

func (s *testNode) close() error {
	s.control.CloseIdleConnections()
	s.cancel()
	return <-s.done
}

func (s *testNode) openState(ctx context.Context) (lifecycle.Resource, error) {
	var err error
	s.state, err = state.Open(ctx, state.Options{
		Dir: filepath.Join(filepath.Dir(s.config.Dir), "state"), Name: string(stageNode), TLS: state.FixedTLS(&tls.Config{MinVersion: tls.VersionTLS13}),
	})
	return s.state, err
}

func (s *testNode) serveState(ctx context.Context, ready func()) error {
	l, err := unixsock.Listen(s.config.StateSocket)
	if err != nil {
		return err
	}
	ready()
	return s.state.ServeLend(ctx, l)
}

// serve accepts connections as the node does.
func (s *testNode) serve(ctx context.Context, ready func()) (err error) {
	if s.web, err = net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = s.web.Close() })
	defer stop()
	node, process, err := ipc.ConnPair(ipc.Options{}, ipc.Options{})
	if err != nil {
		return err
	}
	s.node = node
	var passing sync.WaitGroup
	defer passing.Wait()
	defer node.Close()
	passing.Go(func() { s.tenant.ServeNode(process) })
	ready()
	for {
		conn, err := s.web.AcceptTCP()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := s.passConn(conn); err != nil && ctx.Err() == nil {
			fmt.Fprintln(os.Stderr, "bench: pass a connection:", err)
		}
	}
}

// passConn passes a connection to the tenant.
func (s *testNode) passConn(conn *net.TCPConn) error {
	defer conn.Close()
	file, err := conn.File()
	if err != nil {
		return err
	}
	defer file.Close()
	return s.node.Send(tenant.TypeConn, nil, file)
}

// addr returns the address at which requests to apps are accepted.
func (s *testNode) addr() string { return s.web.Addr().String() }

// callAPI calls the tenant's local API.
func (s *testNode) callAPI(ctx context.Context, method, path string, body, answer any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, method, "http://tenant"+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := s.control.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode/100 != 2 {
		text, _ := io.ReadAll(response.Body)
		return fmt.Errorf("%s %s: %s: %.2000s", method, path, response.Status, text)
	}
	if answer == nil {
		return nil
	}
	return json.NewDecoder(response.Body).Decode(answer)
}

// An app is a manifest with the files that it names.
type app struct {
	text  string
	files map[string][]byte
}

// deploy deploys an app and returns when it is served.
func (s *testNode) deploy(ctx context.Context, a app) error {
	d := client.Deployment{File: "app.yaml", Text: a.text, Files: map[string]string{}}
	for name, content := range a.files {
		digest, err := s.artifacts.Put(ctx, content)
		if err != nil {
			return err
		}
		d.Files[name] = digest
	}
	return s.callAPI(ctx, http.MethodPost, "/v1/apps", d, nil)
}

// run starts an execution and waits until it has completed.
func (s *testNode) run(ctx context.Context, app, workflow string, input any) (client.Execution, error) {
	var e client.Execution
	path := fmt.Sprintf("/v1/apps/%s/workflows/%s/executions?wait=true", app, workflow)
	if err := s.callAPI(ctx, http.MethodPost, path, input, &e); err != nil {
		return e, err
	}
	if e.State != client.StateCompleted {
		return e, fmt.Errorf("execution %s is %s: %+v", e.ID, e.State, e.Fault)
	}
	return e, nil
}

// withStage runs measure on a stage with an app.
func (b *bench) withStage(ctx context.Context, a app, measure func(*testNode) error) error {
	s, err := b.openStage(ctx)
	if err != nil {
		return err
	}
	// The first deployment compiles the modules.
	patient, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	if err = s.deploy(patient, a); err == nil {
		err = measure(s)
	}
	return errors.Join(err, s.close())
}
