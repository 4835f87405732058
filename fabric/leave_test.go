package fabric

import (
	"context"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// TestLateDecode has a handler look at its request when the caller has left and
// uses the message for something else.
func TestLateDecode(t *testing.T) {
	let, decoded := make(chan struct{}), make(chan error, 1)
	s := NewServer()
	s.RegisterService(&grpc.ServiceDesc{
		ServiceName: "test.Late",
		Methods: []grpc.MethodDesc{{MethodName: "Call", Handler: func(_ any, _ context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			<-let
			decoded <- decode(new(testgrpc.SimpleRequest))
			return new(testgrpc.SimpleResponse), nil
		}}},
	}, nil)
	c := dialServer(s, nil)
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	in := &testgrpc.SimpleRequest{Payload: payload(1)}
	b := new(outgoingCall)
	if err := c.startCall(t.Context(), b, "/test.Late/Call", false, nil); err != nil {
		t.Fatal(err)
	}
	wantCode(t, b.invoke(ctx, in, new(testgrpc.SimpleResponse), new(result)), codes.Canceled)
	in.Payload.Body[0] = 1
	close(let)
	if err := <-decoded; err == nil {
		t.Error("the handler read a message that its caller had taken back")
	}
	s.Stop()
}

// endless is a transport whose calls always have another message.
type endless struct{}

func (endless) Open(context.Context, *call.Head) (call.ClientStream, error) { return endless{}, nil }
func (endless) Close() error                                                { return nil }
func (endless) Send(m *call.Message) error                                  { m.Free(); return nil }
func (endless) CloseSend() error                                            { return nil }
func (endless) Header() (metadata.MD, error)                                { return nil, nil }
func (endless) Trailer() metadata.MD                                        { return nil }
func (endless) Recv() (*call.Message, error)                                { return &call.Message{Data: []byte{}}, nil }

// TestLeftWithMessages cancels a stream that has messages waiting.
func TestLeftWithMessages(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := client(dialTransport(endless{}, nil)).FullDuplexCall(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err != nil {
		t.Fatal(err)
	}
	cancel()
	_, err = s.Recv()
	wantCode(t, err, codes.Canceled)
}

// TestTooManyResponses takes the second response of a unary call for a mistake.
func TestTooManyResponses(t *testing.T) {
	c := dialTransport(endless{}, nil)
	_, err := client(c).UnaryCall(t.Context(), new(testgrpc.SimpleRequest))
	wantCode(t, err, codes.Internal)
}

// TestPipe fills and empties one direction of a stream.
func TestPipe(t *testing.T) {
	var p pipe
	p.init()
	freed := 0
	message := func() queued {
		return queued{&call.Message{Data: []byte{}, Release: func() { freed++ }}, 1}
	}
	for range windowMessages {
		if !p.push(message()) {
			t.Fatal("no room in an empty window")
		}
	}
	if p.push(message()) {
		t.Error("room in a full window")
	}
	p.finish()
	if m, ended := p.pop(); m == nil || ended {
		t.Error("the end came before the messages")
	}
	p.drop()
	if m, ended := p.pop(); m != nil || !ended || freed != windowMessages-1 {
		t.Errorf("got %v, %v, %d freed", m, ended, freed)
	}
	if !p.push(queued{&call.Message{}, windowBytes * 2}) {
		t.Error("one large message must always fit")
	}
}
