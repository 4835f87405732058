package node

import (
	"context"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/process"
	"github.com/outboard-run/outboard/internal/model/worker"
)

// modelServers are third-party servers that execute models on this node.
type modelServers struct {
	definitions map[string]process.Server
	spawner     *worker.Spawner
	log         *slog.Logger
}

// modelServers reads the definitions of the node's operator.
func (n *Node) modelServers(spawner *worker.Spawner) (*modelServers, error) {
	s := &modelServers{spawner: spawner, log: n.opts.Log}
	if n.opts.ModelServers == "" {
		return s, nil
	}
	var err error
	s.definitions, err = process.ReadServers(n.opts.ModelServers)
	return s, err
}

func (s *modelServers) names() []string { return slices.Sorted(maps.Keys(s.definitions)) }

// launcher returns the launcher of a worker whose engine forwards requests to a server. The engine
// runs in this process; the server is a separate process, which the operator trusts.
func (s *modelServers) launcher(name string, memory int64) helper.Launcher {
	return helper.Goroutine(func(ctx context.Context, socket *os.File) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		e := &process.Engine{
			Servers: s.definitions,
			Start: func(command, environment []string) (process.Process, error) {
				return s.spawner.StartServer(name, memory, command, environment)
			},
			Exited: cancel, // the worker ends with its server, and both are started again
		}
		err := worker.Run(ctx, socket, worker.ProcessOptions{Engines: []engine.Engine{e}, Log: s.log})
		if cause := context.Cause(ctx); err == nil && cause != nil {
			err = cause
		}
		return err
	})
}
