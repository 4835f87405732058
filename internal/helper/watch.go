package helper

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/outboard-run/outboard/internal/ipc"
)

// Pings say how a process is watched: a request of the type Kind is sent every Interval, and must be
// answered within Limit, if only by an error.
type Pings struct {
	Kind            string
	Interval, Limit time.Duration
}

// Watch pings the process at the other end of a connection. It returns true once the process does not
// respond, and false when the connection or ctx has ended.
func Watch(ctx context.Context, process *ipc.Conn, p Pings) (unresponsive bool) {
	ticks := time.NewTicker(p.Interval)
	defer ticks.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-process.Done():
			return false
		case <-ticks.C:
		}
		limited, cancel := context.WithTimeout(ctx, p.Limit)
		ok := Responds(limited, process, p.Kind)
		cancel()
		if !ok {
			return ctx.Err() == nil
		}
	}
}

// Responds pings the process at the other end of a connection, by a request of the type kind. It returns
// false if the process has not answered at ctx's deadline.
func Responds(ctx context.Context, process *ipc.Conn, kind string) bool {
	m, err := process.Call(ctx, kind, nil)
	if err == nil {
		m.Close()
	}
	// The second one is the error of a full socket.
	return !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, os.ErrDeadlineExceeded)
}
