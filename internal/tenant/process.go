package tenant

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
)

// ProcessOptions configure a process independently of its node.
type ProcessOptions struct {
	Version string
	Logger  *slog.Logger
	// Progress, if it is not nil, is called with a text of what the process does until it is ready.
	Progress func(doing string)
	// Level, if it is not nil, is set to the node's log level.
	Level *slog.LevelVar
}

// Run runs a tenant's process: it receives its Config on the socket, and ends when the node closes
// the socket.
func Run(ctx context.Context, socket *os.File, opts ProcessOptions) error {
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	defer socket.Close()
	node, err := ipc.FromOpenFile(socket, ipc.Options{})
	if err != nil {
		return fmt.Errorf("the node's socket: %w: start the node again with this program", err)
	}
	defer node.Close()
	config, err := configure(ctx, node, opts)
	if err != nil {
		return err
	}
	_ = socket.Close() // no other program needs it any more
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	opts.Progress = func(doing string) { _ = node.Send(TypeReady, Ready{Doing: doing}) }
	t := New(*config, opts)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		t.ServeNode(node) // until the node closes the socket or ends
		cancel()
	}()
	err = t.Run(ctx, func() { _ = node.Send(TypeReady, Ready{PID: os.Getpid()}) })
	if err != nil {
		_ = node.Send(TypeReady, Ready{Error: err.Error()}) // the node may have ended
	}
	err = errors.Join(err, node.Close())
	<-closed
	return err
}

// configure returns the configuration of this process, which is confined then. A process that receives
// the configuration confines itself, and executes this program again.
func configure(ctx context.Context, node *ipc.Conn, opts ProcessOptions) (*Config, error) {
	c, err := inheritConfig()
	if err != nil {
		return nil, err
	}
	confined := c != nil
	if !confined {
		received, err := receiveConfig(ctx, node)
		if err != nil {
			return nil, err
		}
		c = &received
	}
	if opts.Level != nil {
		opts.Level.Set(c.Level)
	}
	if confined {
		return c, nil
	}
	err = c.confine(opts.Logger)
	_ = node.Send(TypeReady, Ready{Error: err.Error()}) // the node may have ended
	return nil, err
}

// receiveConfig receives the node's first message.
func receiveConfig(ctx context.Context, node *ipc.Conn) (Config, error) {
	var c Config
	m, err := node.Receive(ctx)
	if err != nil {
		return c, fmt.Errorf("receive the configuration: %w", err)
	}
	defer m.Close()
	if m.Type != TypeConfig {
		return c, outboard.Errorf(outboard.Protocol, "", "the node's first message is %.40q and not a configuration: start the node again with this program", m.Type)
	}
	if err := m.Decode(&c); err != nil {
		return c, fmt.Errorf("receive the configuration: %w", err)
	}
	if c.Protocol != Protocol {
		return c, fmt.Errorf("the node speaks version %d, this program %d: start the node again with this program", c.Protocol, Protocol)
	}
	return c, nil
}
