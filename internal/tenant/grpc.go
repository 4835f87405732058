package tenant

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/itchyny/gojq"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/dynamicpb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/services"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/outgoing"
)

// grpcCaller makes the calls of workflows to services of the pool, through the node, with the
// descriptors that the services' programs have registered.
type grpcCaller struct {
	tenant *Tenant
	// conn returns the connection to the node, nil if there is none.
	conn func() grpc.ClientConnInterface

	mu       sync.Mutex
	registry *services.Registry // opened by the first call
}

func (g *grpcCaller) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.registry == nil {
		return nil
	}
	return g.registry.Close()
}

// described returns the pool's services.
func (g *grpcCaller) described() (*services.Registry, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.registry != nil {
		return g.registry, nil
	}
	t := g.tenant
	var err error
	g.registry, err = services.Open(t.life, services.Options{State: t.state, Self: t.config.Node, Boot: t.config.Boot, Reader: true, Logger: t.log})
	return g.registry, err
}

// call makes a unary call.
func (g *grpcCaller) call(ctx context.Context, c engine.ServiceCall) (engine.Outcome, error) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.Timeout, outgoing.DefaultTimeout))
	defer cancel()
	service, _ := c.With["service"].(string)
	name, _ := c.With["method"].(string)
	method, err := g.method(service, name)
	if err != nil {
		return engine.Outcome{}, err
	}
	request, response := dynamicpb.NewMessage(method.Input()), dynamicpb.NewMessage(method.Output())
	if err := decodeArguments(c.With["arguments"], request); err != nil {
		return engine.Outcome{}, &dsl.Error{Type: dsl.ErrorValidation, Status: http.StatusBadRequest, Title: "the arguments do not fit " + service + "/" + name, Detail: err.Error()}
	}
	conn := g.conn()
	if conn == nil {
		return engine.Outcome{}, outboard.Errorf(outboard.Unreachable, "", "this process has no node that could call the service")
	}
	if err := conn.Invoke(ctx, "/"+service+"/"+name, request, response); err != nil {
		return engine.Outcome{}, grpcError(err)
	}
	text, err := encodeResponse(response)
	return engine.Outcome{
		Body: text, Type: "application/json",
		Run: engine.Run{Node: string(g.tenant.config.Node), Began: began, Took: time.Since(began), Copied: int64(len(text))},
	}, err
}

// method finds a method's descriptor.
func (g *grpcCaller) method(service, name string) (protoreflect.MethodDescriptor, error) {
	registry, err := g.described()
	if err != nil {
		return nil, err
	}
	d := registry.Service(service)
	if d == nil {
		return nil, configuration(http.StatusNotFound, "no program of the pool has described the service %s: `outboard services` lists those there are", service)
	}
	m := d.Methods().ByName(protoreflect.Name(name))
	switch {
	case m == nil:
		return nil, configuration(http.StatusNotFound, "the service %s has no method %s", service, name)
	case m.IsStreamingClient() || m.IsStreamingServer():
		return nil, configuration(http.StatusNotImplemented, "%s/%s is a stream: workflows call methods with one request and one response", service, name)
	}
	return m, nil
}

func configuration(code int, format string, args ...any) error {
	return &dsl.Error{Type: dsl.ErrorConfiguration, Status: code, Title: "the method can't be called", Detail: fmt.Sprintf(format, args...)}
}

// decodeArguments decodes a value in JSON mapping (ProtoJSON) into a message. Null is the empty
// message.
func decodeArguments(v any, to *dynamicpb.Message) error {
	if v == nil {
		return nil
	}
	text, err := gojq.Marshal(v)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(text, to)
}

// encodeResponse returns a message in JSON mapping. The service chooses the names of fields and of
// the values of enums, which JSON repeats where the message has a byte: its length is computed first.
func encodeResponse(m proto.Message) ([]byte, error) {
	size := jsonSize{left: outgoing.MaxResponse}
	if !size.message(m.ProtoReflect()) {
		return nil, &dsl.Error{
			Type: dsl.ErrorRuntime, Status: http.StatusInsufficientStorage, Title: "a limit was reached",
			Detail: fmt.Sprintf("the response has more than %v as JSON", outboard.Bytes(outgoing.MaxResponse)),
		}
	}
	return protojson.Marshal(m)
}

// jsonSize sums a lower bound of the length of a message in JSON. Its methods report whether that
// is within the limit; left is what remains of it.
type jsonSize struct{ left int }

func (s *jsonSize) add(n int) bool {
	s.left -= n
	return s.left >= 0
}

func (s *jsonSize) message(m protoreflect.Message) bool {
	fits := s.add(len("{}"))
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		fits = s.add(len(f.JSONName())) && s.field(f, v)
		return fits
	})
	return fits
}

func (s *jsonSize) field(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch {
	case f.IsList():
		for i := range v.List().Len() {
			if !s.value(f, v.List().Get(i)) {
				return false
			}
		}
		return true
	case f.IsMap():
		fits := true
		v.Map().Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
			fits = s.value(f.MapKey(), key.Value()) && s.value(f.MapValue(), v)
			return fits
		})
		return fits
	}
	return s.value(f, v)
}

func (s *jsonSize) value(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
	switch f.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return s.message(v.Message())
	case protoreflect.EnumKind:
		if named := f.Enum().Values().ByNumber(v.Enum()); named != nil {
			return s.add(len(named.Name()))
		}
		return s.add(1)
	case protoreflect.StringKind:
		return s.add(len(v.String()))
	case protoreflect.BytesKind:
		return s.add(len(v.Bytes()))
	default: // a number
		return s.add(1)
	}
}

// grpcError converts a status to an error that a workflow can catch by its fields.
func grpcError(err error) error {
	s, ok := status.FromError(err)
	if !ok || errors.Is(err, context.Canceled) {
		return err
	}
	e := &dsl.Error{Type: dsl.ErrorCommunication, Status: http.StatusBadGateway, Title: s.Code().String(), Detail: s.Message()}
	if code, ok := map[codes.Code]int{
		codes.InvalidArgument: 400, codes.FailedPrecondition: 400, codes.OutOfRange: 400, codes.Unauthenticated: 401, codes.PermissionDenied: 403,
		codes.NotFound: 404, codes.Aborted: 409, codes.AlreadyExists: 409, codes.ResourceExhausted: 429, codes.Canceled: 499,
		codes.Internal: 500, codes.Unknown: 500, codes.DataLoss: 500, codes.Unimplemented: 501, codes.Unavailable: 503,
	}[s.Code()]; ok {
		e.Status = code
	}
	if s.Code() == codes.DeadlineExceeded {
		e.Type, e.Status = dsl.ErrorTimeout, http.StatusRequestTimeout
	}
	return e
}
