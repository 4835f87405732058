// Package process is the engine of third-party servers (llama-server, vLLM): it starts and watches
// a server, or uses a running one, and speaks its HTTP interface.
package process

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/freeport"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A Process is a server that was started.
type Process interface {
	// Kill ends the process and its children at once.
	Kill()
	// Wait waits for the end of the process and returns the reason of its end.
	Wait() error
}

// Engine runs the servers that the node's operator has defined.
type Engine struct {
	// Servers are the definitions, by name.
	Servers map[string]Server
	// Start starts a command with additional variables of the environment.
	Start func(command, environment []string) (Process, error)
	// Exited is called when a server that was started has ended by itself and Load does not start
	// another one; nil is allowed.
	Exited func(error)
}

var _ engine.Engine = (*Engine)(nil)

// Name returns "process".
func (*Engine) Name() string { return "process" }

// Version returns "": each kind of server reports its version in its own way.
func (*Engine) Version() string { return "" }

// Load starts the server that options name, unless it is running already, and waits until it is
// ready.
func (e *Engine) Load(ctx context.Context, source engine.Source, o engine.Options) (engine.Model, error) {
	server, known := e.Servers[o.Server]
	if !known {
		return nil, outboard.Errorf(outboard.Invalid, "load", "this node has no model server %q: its operator names them with `outboard up --model-servers FILE`", o.Server)
	}
	m, err := e.open(ctx, server, source, o)
	if err != nil {
		return nil, err
	}
	info, err := m.dialect.describe(ctx, m)
	if err != nil {
		return nil, errors.Join(err, m.Close())
	}
	m.info = info
	return m, nil
}

// open returns the model of a server that is ready. A server that has ended because another process
// was faster to have its port is started again with another one.
func (e *Engine) open(ctx context.Context, server Server, source engine.Source, o engine.Options) (*textModel, error) {
	for starts := 1; ; starts++ {
		m := newTextModel(server)
		err := m.open(ctx, e, source, o)
		if err == nil {
			go e.reportExit(m)
			return m, nil
		}
		lost := m.lostPort(ctx)
		if !lost || starts == maxStarts {
			e.reportFailure(m)
			return nil, errors.Join(err, m.Close())
		}
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
}

// reportExit waits for the end of a model's server, and reports it unless the model was closed.
func (e *Engine) reportExit(m *textModel) {
	if m.process == nil {
		return
	}
	<-m.exited
	if e.Exited != nil && !m.closing.Load() {
		e.Exited(m.ended)
	}
}

// reportFailure reports that a server has ended before it was ready.
func (e *Engine) reportFailure(m *textModel) {
	if m.hasExited() && e.Exited != nil {
		e.Exited(m.ended)
	}
}

func newTextModel(server Server) *textModel {
	return &textModel{
		server: server, dialect: dialects[server.Kind], url: strings.TrimSuffix(server.URL, "/"),
		client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: idleConnections}}, exited: make(chan struct{}),
	}
}

// open starts the server, unless it runs already, and waits until it is ready.
func (m *textModel) open(ctx context.Context, e *Engine, source engine.Source, o engine.Options) error {
	if len(m.server.Command) > 0 {
		if err := m.start(ctx, e, source, o); err != nil {
			return err
		}
	}
	return m.awaitReady(ctx)
}

// hasExited reports whether the server that was started has ended.
func (m *textModel) hasExited() bool {
	select {
	case <-m.exited:
		return true
	default:
		return false
	}
}

// lostPort reports whether the server has ended while another process listens on its port.
func (m *textModel) lostPort(ctx context.Context) bool {
	return m.hasExited() && freeport.Probe(ctx, m.port) != nil
}

const (
	idleConnections = 256
	// maxStarts bounds how often a server is started whose port another process has.
	maxStarts = 3
	// readyInterval is how often a server that is starting is asked whether it is ready.
	readyInterval = 100 * time.Millisecond
	// readyLimit bounds how long a server may take to answer that.
	readyLimit = 10 * time.Second
)

// start starts the server at a free port of the loopback device.
func (m *textModel) start(ctx context.Context, e *Engine, source engine.Source, o engine.Options) (err error) {
	if m.port, err = freeport.Choose(ctx); err != nil {
		return err
	}
	port := strconv.Itoa(m.port)
	m.url = "http://127.0.0.1:" + port
	if m.process, err = e.Start(m.server.command(port, source, o), m.server.environ(o)); err != nil {
		return outboard.Errorf(outboard.Unreachable, "start "+o.Server, "%w", err)
	}
	go func() {
		m.ended = m.process.Wait()
		close(m.exited)
	}()
	return nil
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

// visible are the variables that give a server its accelerators, by their API.
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
			list = append(list, variable+"=") // no devices of other kinds
		}
	}
	return list
}

// awaitReady waits until the server reports that it is ready.
func (m *textModel) awaitReady(ctx context.Context) error {
	for {
		err := m.checkHealth(ctx)
		if err == nil {
			return nil
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

// checkHealth asks the server once whether it is ready, unless it ends meanwhile: what listens on its
// port may be another program, which never answers.
func (m *textModel) checkHealth(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	go func() {
		select {
		case <-m.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"/health", http.NoBody)
	if err != nil {
		return err
	}
	r, err := m.client.Do(request)
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	if r.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s/health: status %d", m.url, r.StatusCode)
	}
	return nil
}

func orSilent(err error) error {
	if err == nil {
		return errors.New("it gave no reason")
	}
	return err
}
