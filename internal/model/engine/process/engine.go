// Package process is the engine of third-party servers: it starts and watches a server, or uses a
// running one, and speaks its interface. Servers for text are llama-server, vLLM and SGLang, by HTTP; servers
// for tensors are those of the Open Inference Protocol, by gRPC.
package process

import (
	"context"
	"errors"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A Process is a server that was started.
type Process interface {
	// Kill ends the process and its children at once.
	Kill()
	// Wait waits for the end of the process and returns the reason of its end.
	Wait() error
}

// A serverModel is a model that a server executes.
type serverModel interface {
	engine.Model
	base() *connection
	// checkReady asks the server once whether it is ready. An error of the kind outboard.Invalid means
	// that it will not become ready.
	checkReady(ctx context.Context) error
	// describe requests the description of the model.
	describe(ctx context.Context) error
}

// newModel returns the model of a server that has not been started.
func newModel(server Server) serverModel {
	if server.Kind == kindOIP {
		return newTensorModel(server)
	}
	return newTextModel(server)
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
	if err := m.describe(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// open returns the model of a server that is ready. A server that has ended because another process
// was faster to have its port is started again with another one.
func (e *Engine) open(ctx context.Context, server Server, source engine.Source, o engine.Options) (serverModel, error) {
	for starts := 1; ; starts++ {
		m := newModel(server)
		err := e.await(ctx, m, source, o)
		if err == nil {
			go e.reportExit(m.base())
			return m, nil
		}
		lost := m.base().lostPort(ctx)
		if !lost || starts == maxStarts {
			e.reportFailure(m.base())
			return nil, errors.Join(err, m.Close())
		}
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
}

// await starts the server, unless it runs already, and waits until it is ready.
func (e *Engine) await(ctx context.Context, m serverModel, source engine.Source, o engine.Options) error {
	c := m.base()
	if len(c.server.Command) > 0 {
		if err := c.start(ctx, e.Start, source, o); err != nil {
			return err
		}
	}
	return c.awaitReady(ctx, m.checkReady)
}

// reportExit waits for the end of a model's server, and reports it unless the model was closed.
func (e *Engine) reportExit(c *connection) {
	if c.process == nil {
		return
	}
	<-c.exited
	if e.Exited != nil && !c.closing.Load() {
		e.Exited(c.ended)
	}
}

// reportFailure reports that a server has ended before it was ready.
func (e *Engine) reportFailure(c *connection) {
	if c.hasExited() && e.Exited != nil {
		e.Exited(c.ended)
	}
}
