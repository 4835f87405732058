package ranks

import (
	"context"
	"net"
	"net/netip"

	"github.com/outboard-run/outboard/internal/train/collective"
	"github.com/outboard-run/outboard/internal/train/datagram"
)

// openPaths opens paths of datagrams to the nodes before and behind this one in the ring. Both nodes
// of a path do so at the same time.
func (r *remote) openPaths(ctx context.Context, mesh Mesh, name string) ([]*collective.Datagrams, error) {
	n := len(r.nodes)
	paths, errs := make([]*collective.Datagrams, n), make(chan error)
	neighbours := map[int]bool{(r.self + 1) % n: true, (r.self + n - 1) % n: true}
	for i := range neighbours {
		go func() {
			var err error
			paths[i], err = openPath(ctx, mesh, r.nodes[i], name)
			errs <- err
		}()
	}
	var failed error
	for range neighbours {
		if err := <-errs; err != nil {
			failed = err
		}
	}
	if failed == nil {
		return paths, nil
	}
	for _, d := range paths {
		if d != nil {
			_ = d.Path.Close() // Nothing was sent.
			_ = d.Stream.Close()
		}
	}
	return nil, failed
}

// openPath opens a path of datagrams between the addresses of the connection to a node.
func openPath(ctx context.Context, mesh Mesh, node int, name string) (*collective.Datagrams, error) {
	stream, err := mesh.Connect(ctx, node, "datagrams "+name)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.Close() }) // Ends Open.
	defer stop()
	path, err := datagram.Open(ctx, stream, hostOf(stream.LocalAddr()), hostOf(stream.RemoteAddr()))
	if err != nil {
		_ = stream.Close() // It is of no use.
		return nil, err
	}
	return &collective.Datagrams{Path: path, Stream: stream}, nil
}

// hostOf returns the host of an address of TCP; that of this machine for a connection without one,
// which does not leave the machine.
func hostOf(a net.Addr) netip.Addr {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.AddrPort().Addr().Unmap()
	}
	return netip.AddrFrom4([4]byte{127, 0, 0, 1})
}
