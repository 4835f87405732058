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

// ProcessOptions are what a process knows without its node.
type ProcessOptions struct {
	Version string
	Logger  *slog.Logger
	// Progress, where it is not nil, hears what the process does until it is ready.
	Progress func(doing string)
	// Level, where it is not nil, is set to what the node logs.
	Level *slog.LevelVar
}

// Run is a tenant's process: it becomes what the node says on the socket, and ends
// with it.
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
	if err := confined(&config, opts.Logger); err != nil {
		return errors.Join(err, answer(node, Ready{Error: err.Error()}))
	}
	opts.Progress = func(doing string) { _ = answer(node, Ready{Doing: doing}) }
	t := New(config, opts)
	said := make(chan struct{})
	go func() {
		defer close(said)
		_, _ = io.Copy(io.Discard, in) // until the node is gone or lets go
		cancel()
	}()
	err = t.Run(ctx, func() { _ = answer(node, Ready{PID: os.Getpid()}) })
	if err != nil {
		err = errors.Join(err, answer(node, Ready{Error: err.Error()}))
	}
	err = errors.Join(err, node.Close())
	<-said
	return err
}

// confined gives up what the process does not need. What this machine can't take away
// is logged.
func confined(c *Config, log *slog.Logger) error {
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
		return c, fmt.Errorf("what the node says: %w", err)
	}
	if err := json.Unmarshal(line, &c); err != nil {
		return c, fmt.Errorf("what the node says: %w", err)
	}
	if c.Protocol != Protocol {
		return c, fmt.Errorf("the node speaks version %d, this program %d: start the node again with this program", c.Protocol, Protocol)
	}
	return c, nil
}

// answer tells the node; one that is gone ends this process by itself.
func answer(node net.Conn, r Ready) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	_, _ = node.Write(append(text, '\n'))
	return nil
}
