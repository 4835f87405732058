package fabric

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/datadir"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// nodeSocket returns the socket of the node that a target means: that of path, or of the node that
// commands talk to.
func nodeSocket(path string) string {
	if path != "" {
		return path
	}
	data := os.Getenv("OUTBOARD_DATA")
	if data == "" {
		data = datadir.Default()
	}
	return filepath.Join(data, datadir.CallsSocket)
}

// nodeListener serves the calls that a node forwards: it connects to the node and offers the
// server's services there.
type nodeListener struct {
	path    string
	options *options
}

func listenNode(path string, o *options) Listener {
	return &nodeListener{path: nodeSocket(path), options: o}
}

// Addr implements Listener.
func (l *nodeListener) Addr() net.Addr { return &net.UnixAddr{Name: l.path, Net: "unix"} }

// Close implements Listener.
func (l *nodeListener) Close() error { return nil }

// serve implements Listener. It offers the services again after a restart of the node, or a
// hand-over to another process.
func (l *nodeListener) serve(ctx context.Context, s *Server) error {
	if !s.beginOffer() {
		return nil
	}
	defer s.offers.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.draining, cancel)()
	var conns sync.WaitGroup
	defer conns.Wait()
	id, failures := "", 0
	for first := true; ; first = false {
		conn, err := l.connect(ctx, s, &id)
		failures++
		if err == nil {
			failures = 0
			conns.Go(func() { l.serveConn(ctx, s, conn) })
			select {
			case <-conn.Draining():
			case <-ctx.Done():
			}
		}
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && conn.Err() == nil:
			continue // the node's next process listens already
		case err != nil && first:
			return fmt.Errorf("fabric: offer services to the node at %s: %w", l.path, err)
		case err != nil:
			l.options.logger.Debug("the node does not accept the offer", "path", l.path, "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(onThisMachine().wait(failures)):
		}
	}
}

// connect offers the services on a new connection. id is the endpoint's ID in the pool, as the node
// has assigned it.
func (l *nodeListener) connect(ctx context.Context, s *Server, id *string) (*shared.Conn, error) {
	conn, err := shared.Dial(ctx, l.path, shared.Options{
		Handler: serverHandler{s}, Trust: true, Logger: l.options.logger, MaxCalls: l.options.maxCalls, MaxMessage: l.options.transportLimit(),
	})
	if err != nil {
		return nil, err
	}
	if err := l.offerServices(ctx, conn, s, id); err != nil {
		if ctx.Err() != nil {
			l.drain(s, conn) // the node may have stored the offer, and sends calls then
		}
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

// serveConn serves a connection until it ends, also after the server has changed to another.
// When ctx ends it drains the connection.
func (l *nodeListener) serveConn(ctx context.Context, s *Server, conn *shared.Conn) {
	select {
	case <-ctx.Done():
		l.drain(s, conn)
	case <-conn.Done():
	}
	_ = conn.Close()
}

// drain requests the node to withdraw the services, and serves until the node has no call in flight
// and closes the connection. The time is limited unless GracefulStop waits for calls.
func (l *nodeListener) drain(s *Server, conn *shared.Conn) {
	conn.Drain()
	limit := time.NewTimer(s.options.drainTimeout)
	defer limit.Stop()
	for {
		select {
		case <-conn.Done():
			return
		case <-s.life.Done():
			return
		case <-limit.C:
		}
		if s.draining.Err() == nil || s.calls.Load() == 0 {
			return
		}
		limit.Reset(s.options.drainTimeout)
	}
}

// offerServices offers the services of a server. The offer carries the credentials of the
// listener's options, as calls do.
func (l *nodeListener) offerServices(ctx context.Context, conn *shared.Conn, s *Server, id *string) error {
	md := metadata.MD{offer.ProgramKey: {filepath.Base(os.Args[0])}}
	for _, creds := range l.options.credentials {
		if err := addCredentials(ctx, creds, l.path, md, codes.Unauthenticated, true); err != nil {
			return err
		}
	}
	if *id != "" {
		md.Set(offer.EndpointKey, *id)
	}
	set := &descriptorpb.FileDescriptorSet{}
	for name := range s.GetServiceInfo() {
		md.Append(offer.ServiceKey, name)
		addService(set, name)
	}
	text, err := proto.Marshal(set)
	if err != nil {
		return err
	}
	response, end, err := conn.Unary(ctx, &call.Head{Method: offer.Method, Metadata: md}, &call.Message{Data: text})
	response.Free()
	if given := end.Header.Get(offer.EndpointKey); err == nil && len(given) == 1 {
		*id = given[0]
	}
	return err
}

// addService adds the files of a service that this program knows, imports first.
func addService(set *descriptorpb.FileDescriptorSet, service string) {
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return // policies and reflection will not see the fields of its messages
	}
	addFile(set, d.ParentFile())
}

func addFile(set *descriptorpb.FileDescriptorSet, file protoreflect.FileDescriptor) {
	for _, have := range set.GetFile() {
		if have.GetName() == file.Path() {
			return
		}
	}
	imports := file.Imports()
	for i := range imports.Len() {
		addFile(set, imports.Get(i).FileDescriptor)
	}
	set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
}
