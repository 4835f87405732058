package tenant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"github.com/outboard-run/outboard/internal/gateway"
	"github.com/outboard-run/outboard/internal/unixsock"
)

// largestHead bounds what the node may have read of a connection.
const largestHead = 1 << 20

// serveConns takes connections that the node hands over.
func (t *Tenant) serveConns(ctx context.Context, ready func()) error {
	listener, err := unixsock.Listen(t.config.ConnsSocket())
	if err != nil {
		return fmt.Errorf("take connections: %w", err)
	}
	defer os.Remove(t.config.ConnsSocket())
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	ready()
	var taking sync.WaitGroup
	defer taking.Wait()
	for {
		door, err := listener.AcceptUnix()
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("take connections: %w", err)
		}
		taking.Go(func() {
			if err := t.takeConn(ctx, door); err != nil {
				t.log.Warn("a connection was not taken over", "error", err)
			}
		})
	}
}

// connPatience is how long the first request of a connection waits for its app. Who has to wait
// for longer is told to come again: another node may serve it.
const connPatience = 10 * time.Second

// takeConn takes one connection over and serves it.
func (t *Tenant) takeConn(ctx context.Context, door *net.UnixConn) error {
	conn, first, err := received(door)
	if err = errors.Join(err, door.Close()); err != nil {
		if conn != nil {
			_ = conn.Close()
		}
		return err
	}
	if app := gateway.AppRead(first); t.apps.Current(app) == nil {
		ctx, cancel := context.WithTimeout(ctx, connPatience)
		defer cancel()
		_ = t.apps.AwaitServing(ctx, app) // the gateway says so
	}
	t.gateway.ServeConn(conn, first)
	return nil
}

func received(door *net.UnixConn) (net.Conn, []byte, error) {
	head := make([]byte, 4)
	file, err := unixsock.Receive(door, head)
	if err != nil {
		return nil, nil, err
	}
	if file == nil {
		return nil, nil, errors.New("no connection came along")
	}
	defer file.Close()
	size := binary.LittleEndian.Uint32(head)
	if size > largestHead {
		return nil, nil, fmt.Errorf("%d bytes were read of it: too many", size)
	}
	first := make([]byte, size)
	if _, err := io.ReadFull(door, first); err != nil {
		return nil, nil, err
	}
	conn, err := net.FileConn(file)
	return conn, first, err
}
