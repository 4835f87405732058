package fabric

import (
	"context"
	"path/filepath"
	"testing"

	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/fabric/shared"
)

// acceptsOffers is the node's side of a connection on which a program offers services.
type acceptsOffers func()

func (acceptsOffers) Serve(call.ServerStream) error { return nil }

func (a acceptsOffers) ServeUnary(_ context.Context, h *call.Head, request *call.Message) (*call.Message, call.End, error) {
	request.Free()
	if h.Method == offer.Method {
		a()
	}
	return &call.Message{Data: []byte{}}, call.End{Header: metadata.MD{offer.EndpointKey: {"harbour/1"}}}, nil
}

// A server that stops while its node stores its offer serves the calls that the node sends until the
// node has withdrawn it.
func TestServerStopsWhileItOffers(t *testing.T) {
	for name, stop := range map[string]func(s *Server, cancel func()){
		"context":      func(_ *Server, cancel func()) { cancel() },
		"GracefulStop": func(s *Server, _ func()) { go s.GracefulStop() },
	} {
		t.Run(name, func(t *testing.T) {
			s := NewServer()
			testgrpc.RegisterTestServiceServer(s, interop.NewTestServer())
			running, cancel := context.WithCancel(t.Context())
			defer cancel()
			path := filepath.Join(t.TempDir(), "s")
			conns := make(chan *shared.Conn, 1)
			node, err := shared.Listen(path, shared.Options{Handler: acceptsOffers(func() {
				c := <-conns
				conns <- c
				stop(s, cancel)
				<-c.Draining()
			})})
			if err != nil {
				t.Fatal(err)
			}
			served := make(chan error, 2)
			serving, end := context.WithCancel(context.Background())
			go func() {
				served <- node.Serve(serving, func(c *shared.Conn) error {
					conns <- c
					return nil
				})
			}()
			l, err := Listen("node:" + path)
			if err != nil {
				t.Fatal(err)
			}
			go func() { served <- s.Run(running, l) }()
			c := <-conns
			conns <- c
			<-c.Draining()
			m, _, err := c.Unary(t.Context(), &call.Head{Method: "/grpc.testing.TestService/EmptyCall"}, &call.Message{Data: []byte{}})
			if err != nil {
				t.Errorf("a call that the node has sent: %v", err)
			}
			m.Free()
			_ = c.Finish(t.Context())
			_ = c.Close()
			if err := <-served; err != nil {
				t.Error(err)
			}
			s.Stop()
			end()
			if err := <-served; err != nil {
				t.Error(err)
			}
		})
	}
}
