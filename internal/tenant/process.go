package tenant

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
)

// ProcessOptions configure a process independently of its node.
type ProcessOptions struct {
	Version string
	Logger  *slog.Logger
	// Progress, if it is not nil, is called with what the process does until it is ready.
	Progress func(doing string)
	// Level, if it is not nil, is set to the node's log level.
	Level *slog.LevelVar
}

// Run runs a tenant's process: it receives its Config on the socket, and ends when the node
// closes that.
func Run(ctx context.Context, socket *os.File, opts ProcessOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	node, err := net.FileConn(socket)
	if err = errors.Join(err, socket.Close()); err != nil {
		return fmt.Errorf("the node's socket: %w", err)
	}
	defer node.Close()
	in := bufio.NewReader(node)
	config, err := readConfig(in)
	if err != nil {
		return err
	}
	if opts.Level != nil {
		opts.Level.Set(config.Level)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if err := enterConfinement(&config, opts.Logger); err != nil {
		return errors.Join(err, answer(node, Ready{Error: err.Error()}))
	}
	opts.Progress = func(doing string) { _ = answer(node, Ready{Doing: doing}) }
	t := New(config, opts)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_, _ = io.Copy(io.Discard, in) // until the node closes the socket or ends
		cancel()
	}()
	err = t.Run(ctx, func() { _ = answer(node, Ready{PID: os.Getpid()}) })
	if err != nil {
		err = errors.Join(err, answer(node, Ready{Error: err.Error()}))
	}
	err = errors.Join(err, node.Close())
	<-closed
	return err
}

// enterConfinement confines the process. What this machine does not support is logged.
func enterConfinement(c *Config, log *slog.Logger) error {
	if err := c.removeLinks(log); err != nil {
		return err
	}
	if err := c.makeDirs(); err != nil {
		return err
	}
	err := c.confine()
	if gap, ok := errors.AsType[*gapError](err); ok {
		log.Warn("a tenant's process can reach the files of the node's user", "plane", "tenant", "node", c.Node, "tenant", c.Tenant, "error", gap)
		return nil
	}
	return err
}

func readConfig(in *bufio.Reader) (Config, error) {
	var c Config
	line, err := in.ReadBytes('\n')
	if err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return c, fmt.Errorf("read the configuration: %w", err)
	}
	if c.Protocol != Protocol {
		return c, fmt.Errorf("the node speaks version %d, this program %d: start the node again with this program", c.Protocol, Protocol)
	}
	return c, nil
}

// answer sends the node a message. A node that is gone ends this process anyway.
func answer(node net.Conn, r Ready) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, _ = node.Write(append(text, '\n'))
	return nil
}
