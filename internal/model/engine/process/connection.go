package process

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/freeport"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A connection is a server that Load has started, or that ran already.
type connection struct {
	server Server
	url    string
	ports  []int // of a server that was started

	process Process       // nil for a server that Load has not started
	exited  chan struct{} // closed when process has ended
	ended   error         // set before exited is closed
	closing atomic.Bool
}

func newConnection(server Server) *connection {
	return &connection{server: server, url: strings.TrimSuffix(server.URL, "/"), exited: make(chan struct{})}
}

func (c *connection) base() *connection { return c }

// end ends a server that Load has started.
func (c *connection) end() {
	c.closing.Store(true)
	if c.process != nil {
		c.process.Kill()
		<-c.exited
	}
}

// hasExited reports whether the server that was started has ended.
func (c *connection) hasExited() bool {
	select {
	case <-c.exited:
		return true
	default:
		return false
	}
}

// exitLimit is how long a call whose connection has failed waits for the end of the server.
const exitLimit = time.Second

// explain returns the error of a call whose connection to the server has failed: an engine.Crash if
// the server, which Load has started, has ended. The worker ends with its server, and its calls in
// progress with the worker, so explain waits for that.
func (c *connection) explain(ctx context.Context, err error) error {
	if c.process == nil || c.closing.Load() {
		return err
	}
	limit := time.NewTimer(exitLimit)
	defer limit.Stop()
	select {
	case <-c.exited:
	case <-limit.C:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-limit.C:
	case <-ctx.Done():
	}
	return &engine.Crash{Reason: outboard.Errorf(outboard.Unreachable, "model server", "it ended: %w", orSilent(c.ended))}
}

// lostPort reports whether the server has ended while another process listens on one of its ports.
func (c *connection) lostPort(ctx context.Context) bool {
	if !c.hasExited() {
		return false
	}
	for _, port := range c.ports {
		if freeport.Probe(ctx, port) != nil {
			return true
		}
	}
	return false
}

const (
	// maxStarts bounds how often a server is started whose port another process has.
	maxStarts = 3
	// readyInterval is how often a server that is starting is asked whether it is ready.
	readyInterval = 100 * time.Millisecond
	// readyLimit bounds how long a server may take to answer that.
	readyLimit = 10 * time.Second
)

// portNames are the placeholders of ports of a server that is started. It serves its interface at the
// first; some servers need others, for interfaces that are not used.
//
//nolint:gochecknoglobals // a table
var portNames = []string{"{port}", "{port2}", "{port3}"}

// start starts the server at free ports of the loopback device.
func (c *connection) start(ctx context.Context, start func(command, environment []string) (Process, error), source engine.Source, o engine.Options) (err error) {
	if _, err := os.Stat(source.Path); source.Path != "" && err != nil {
		return outboard.Errorf(outboard.NotFound, "start "+o.Server, "%w", err)
	}
	for len(c.ports) < len(portNames) {
		port, err := freeport.Choose(ctx)
		if err != nil {
			return err
		}
		if !slices.Contains(c.ports, port) {
			c.ports = append(c.ports, port)
		}
	}
	values, err := c.server.placeholders(c.ports, source, o)
	if err != nil {
		return err
	}
	c.url = schemeOf(c.server.Kind) + "://127.0.0.1:" + strconv.Itoa(c.ports[0])
	if c.process, err = start(c.server.command(values), c.server.environ(values, o)); err != nil {
		return outboard.Errorf(outboard.Unreachable, "start "+o.Server, "%w", err)
	}
	go func() {
		c.ended = c.process.Wait()
		close(c.exited)
	}()
	return nil
}

// placeholders returns the values of the placeholders in a definition.
func (s *Server) placeholders(ports []int, source engine.Source, o engine.Options) (*strings.Replacer, error) {
	values := []string{
		"{model}", source.Path, "{folder}", source.Folder, "{context}", strconv.Itoa(o.Context),
		"{sequences}", strconv.Itoa(max(o.Sequences, 1)), "{threads}", strconv.Itoa(max(o.Threads, 1)),
	}
	for i, name := range portNames {
		values = append(values, name, strconv.Itoa(ports[i]))
	}
	if s.contains(repositoryName) {
		folder, err := s.makeRepository(source)
		if err != nil {
			return nil, err
		}
		values = append(values, repositoryName, folder)
	}
	return strings.NewReplacer(values...), nil
}

// command returns the server's command with its placeholders filled in.
func (s *Server) command(values *strings.Replacer) []string {
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
func (s *Server) environ(values *strings.Replacer, o engine.Options) []string {
	var list []string
	for name, value := range s.Environment {
		list = append(list, name+"="+values.Replace(value))
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
func (c *connection) awaitReady(ctx context.Context, check func(context.Context) error) error {
	for {
		err := c.checkOnce(ctx, check)
		switch {
		case err == nil:
			return nil
		case outboard.KindOf(err) == outboard.Invalid:
			return err
		case c.process == nil:
			return outboard.Errorf(outboard.Unreachable, "model server", "%w", err)
		}
		select {
		case <-c.exited:
			return outboard.Errorf(outboard.Invalid, "model server", "it ended before it was ready: %w", orSilent(c.ended))
		case <-ctx.Done():
			return outboard.Errorf(outboard.Unreachable, "model server", "it is not ready: %w", err)
		case <-time.After(readyInterval):
		}
	}
}

// checkOnce asks the server once whether it is ready, unless it ends meanwhile: what listens on its
// port may be another program, which never answers.
func (c *connection) checkOnce(ctx context.Context, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	go func() {
		select {
		case <-c.exited:
			cancel()
		case <-ctx.Done():
		}
	}()
	return check(ctx)
}

func orSilent(err error) error {
	if err == nil {
		return errors.New("it gave no reason")
	}
	return err
}

var errClosed = outboard.Errorf(outboard.Unreachable, "", "the model is being unloaded")
