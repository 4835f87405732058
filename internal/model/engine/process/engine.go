// Package process is the engine of servers that somebody else wrote (llama-server, vLLM): it starts
// and watches one, or uses one that runs already, and speaks its HTTP interface.
package process

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A Process is a server that was started.
type Process interface {
	// Kill ends the process and its children at once.
	Kill()
	// Wait waits for the end of the process and returns why it ended.
	Wait() error
}

// Engine runs the servers that the node's operator has defined.
type Engine struct {
	// Servers are the definitions, by name.
	Servers map[string]Server
	// Start starts a command with further variables of the environment.
	Start func(command, environment []string) (Process, error)
	// Exited is called when a server that was started has ended by itself; nil is allowed.
	Exited func(error)
}

var _ engine.Engine = (*Engine)(nil)

// Name returns "process".
func (*Engine) Name() string { return "process" }

// Version returns "": servers tell theirs in their own ways.
func (*Engine) Version() string { return "" }

// Load starts the server that options name, unless it runs already, and waits until it is ready.
func (e *Engine) Load(ctx context.Context, source engine.Source, o engine.Options) (engine.Model, error) {
	server, known := e.Servers[o.Server]
	if !known {
		return nil, outboard.Errorf(outboard.Invalid, "load", "this node has no model server %q: its operator names them with `outboard up --model-servers FILE`", o.Server)
	}
	m := &textModel{server: server, url: strings.TrimSuffix(server.URL, "/"), client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idleConnections}}, exited: make(chan struct{})}
	m.dialect = dialects[server.Kind]
	if len(server.Command) > 0 {
		if err := m.start(e, source, o); err != nil {
			return nil, err
		}
	}
	if err := m.awaitReady(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	info, err := m.dialect.describe(ctx, m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.info = info
	return m, nil
}

const (
	idleConnections = 256
	// readyInterval is how often a server that is starting is asked whether it is ready.
	readyInterval = 100 * time.Millisecond
)

// start starts the server at a free port of the loopback device.
func (m *textModel) start(e *Engine, source engine.Source, o engine.Options) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	m.url = "http://127.0.0.1:" + port
	if m.process, err = e.Start(m.server.command(port, source, o), m.server.environ(o)); err != nil {
		return outboard.Errorf(outboard.Unreachable, "start "+o.Server, "%w", err)
	}
	go func() {
		m.ended = m.process.Wait()
		close(m.exited)
		if e.Exited != nil && !m.closing.Load() {
			e.Exited(m.ended)
		}
	}()
	return nil
}

// freePort returns a port of the loopback device that nobody listens on.
func freePort() (string, error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(l.Addr().String())
	return port, errors.Join(err, l.Close())
}

// command returns the server's command with its placeholders filled in.
func (s *Server) command(port string, source engine.Source, o engine.Options) []string {
	values := strings.NewReplacer("{port}", port, "{model}", source.Path, "{folder}", source.Folder,
		"{context}", strconv.Itoa(o.Context), "{sequences}", strconv.Itoa(max(o.Sequences, 1)), "{threads}", strconv.Itoa(max(o.Threads, 1)))
	var list []string
	for _, argument := range s.Command {
		list = append(list, values.Replace(argument))
	}
	return list
}

// visible are the variables by which servers are given an accelerator, by its API.
//
//nolint:gochecknoglobals // a table
var visible = map[string]string{"cuda": "CUDA_VISIBLE_DEVICES", "rocm": "ROCR_VISIBLE_DEVICES", "vulkan": "GGML_VK_VISIBLE_DEVICES"}

// environ returns the variables of the server: its own, and the device that it may use.
func (s *Server) environ(o engine.Options) []string {
	var list []string
	for name, value := range s.Environment {
		list = append(list, name+"="+value)
	}
	api, index, _ := strings.Cut(o.Device, "/")
	for known, variable := range visible {
		if known == api {
			list = append(list, variable+"="+index)
		} else {
			list = append(list, variable+"=") // none of another kind
		}
	}
	return list
}

// awaitReady waits until the server says that it is ready.
func (m *textModel) awaitReady(ctx context.Context) error {
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/health", http.NoBody)
		if err != nil {
			return err
		}
		r, err := m.client.Do(request)
		if err == nil {
			_ = r.Body.Close()
			if r.StatusCode == http.StatusOK {
				return nil
			}
			err = fmt.Errorf("GET %s/health: status %d", m.url, r.StatusCode)
		}
		if m.process == nil {
			return outboard.Errorf(outboard.Unreachable, "model server", "%w", err)
		}
		select {
		case <-m.exited:
			return outboard.Errorf(outboard.Invalid, "model server", "it ended before it was ready: %w", orSilent(m.ended))
		case <-ctx.Done():
			return outboard.Errorf(outboard.Unreachable, "model server", "it is not ready: %w", err)
		case <-time.After(readyInterval):
		}
	}
}

func orSilent(err error) error {
	if err == nil {
		return errors.New("it gave no reason")
	}
	return err
}
