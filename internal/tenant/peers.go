package tenant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
	"github.com/outboard-run/outboard/internal/workflow/engine"
)

// The service that processes of one tenant have for each other. Each node's is a
// service of its own, so that a call names the node. What is not bytes travels as
// JSON in the metadata.
const (
	callMethod   = "Call"
	readMethod   = "Read"
	keepMethod   = "Keep"
	warmMethod   = "Warm"
	lookMethod   = "Look"
	logsMethod   = "Logs"
	countsMethod = "Counts"
	stagesMethod = "Stages"
	placesMethod = "Places"

	headKey = "outboard-head-bin"
	// largestMessage is how large a request, a result or a file may be.
	largestMessage = 1 << 30
)

func serviceName(tenant string, node outboard.NodeID) string {
	return "outboard.tenant." + tenant + "." + string(node)
}

// peers are the tenant's processes on other nodes.
type peers struct {
	tenant string
	conn   *fabric.ClientConn
}

// dialPeers makes calls by way of the node. A process without a node has no peers.
func dialPeers(c *Config, log *slog.Logger) (*peers, error) {
	if c.CallsSocket == "" {
		return &peers{tenant: c.Tenant}, nil
	}
	conn, err := fabric.Dial("node:"+c.CallsSocket, fabric.WithMaxReceive(largestMessage), fabric.WithMaxSend(largestMessage), fabric.WithLogger(log))
	if err != nil {
		return nil, err
	}
	return &peers{tenant: c.Tenant, conn: conn}, nil
}

func (p *peers) close() error {
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}

// invoke calls a method of a node's process.
func (p *peers) invoke(ctx context.Context, node outboard.NodeID, method string, head any, body []byte, answer any) ([]byte, error) {
	if p.conn == nil {
		return nil, outboard.Errorf(outboard.Unreachable, fmt.Sprintf("node %s", node), "this process has no node that could reach it")
	}
	text, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	var (
		out     wrapperspb.BytesValue
		trailer metadata.MD
	)
	ctx = metadata.AppendToOutgoingContext(ctx, headKey, string(text))
	err = p.conn.Invoke(ctx, "/"+serviceName(p.tenant, node)+"/"+method, wrapperspb.Bytes(body), &out, grpc.Trailer(&trailer))
	if err != nil {
		return nil, outboard.Errorf(kindOfStatus(err), fmt.Sprintf("node %s", node), "%w", err)
	}
	if texts := trailer.Get(headKey); len(texts) == 1 && answer != nil {
		err = json.Unmarshal([]byte(texts[0]), answer)
	}
	return out.GetValue(), err
}

func kindOfStatus(err error) outboard.Kind {
	switch status.Code(err) {
	case codes.NotFound:
		return outboard.NotFound
	case codes.ResourceExhausted:
		return outboard.Busy
	default:
		return outboard.Unreachable
	}
}

// A ran is what a process says of a call that it made for another.
type ran struct {
	Type  string        `json:"type,omitempty"`
	Run   engine.Run    `json:"run"`
	Fault *dsl.Error    `json:"fault,omitempty"`
	Kind  outboard.Kind `json:"kind,omitempty"`
	Error string        `json:"error,omitempty"`
}

func (r *ran) err() error {
	switch {
	case r.Fault != nil:
		return r.Fault
	case r.Error != "":
		return outboard.Errorf(r.Kind, "", "%s", r.Error)
	}
	return nil
}

// step has another node run a step.
func (p *peers) step(ctx context.Context, c engine.FunctionCall) (engine.Outcome, error) {
	body, node := c.Body, outboard.NodeID(c.Node)
	c.Body, c.At, c.Node = nil, nil, ""
	var r ran
	out, err := p.invoke(ctx, node, callMethod, c, body, &r)
	if err != nil {
		return engine.Outcome{}, err
	}
	r.Run.Copied += int64(len(body) + len(out))
	return engine.Outcome{Body: out, Type: r.Type, Run: r.Run}, r.err()
}

// read returns a file that a node has.
func (p *peers) read(ctx context.Context, node outboard.NodeID, digest string) ([]byte, error) {
	return p.invoke(ctx, node, readMethod, digest, nil, nil)
}

// keep has a node keep a file.
func (p *peers) keep(ctx context.Context, node outboard.NodeID, owner string, content []byte) error {
	_, err := p.invoke(ctx, node, keepMethod, owner, content, nil)
	return err
}

// warm has a node make an instance for a call to come.
func (p *peers) warm(ctx context.Context, node outboard.NodeID, f target) error {
	_, err := p.invoke(ctx, node, warmMethod, f, nil, nil)
	return err
}

// look has a node look whether an execution that it runs has ended in the log.
func (p *peers) look(ctx context.Context, node outboard.NodeID, id engine.ID) error {
	_, err := p.invoke(ctx, node, lookMethod, id, nil, nil)
	return err
}

// counts asks a node what the functions of an app did there.
func (p *peers) counts(ctx context.Context, node outboard.NodeID, app string) ([]functionCounts, error) {
	var all []functionCounts
	text, err := p.invoke(ctx, node, countsMethod, app, nil, nil)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	return all, err
}

// errOld is a process that does not know a method.
var errOld = errors.New("its program is too old to tell")

// stages asks a node how far it is with the tenant's apps.
func (p *peers) stages(ctx context.Context, node outboard.NodeID) (map[string]stage, error) {
	var all map[string]stage
	text, err := p.invoke(ctx, node, stagesMethod, nil, nil, nil)
	if err == nil {
		err = json.Unmarshal(text, &all)
		return all, err
	}
	if status.Code(err) == codes.Unimplemented {
		// Either there is no process, or one that knows only what it always could.
		if _, known := p.counts(ctx, node, ""); known == nil {
			err = errOld
		}
	}
	return nil, err
}

// askAll asks nodes at once. Failed has the errors of those that did not answer.
func askAll[T any](
	ctx context.Context, nodes []outboard.NodeID, ask func(context.Context, outboard.NodeID) (T, error),
) (told map[outboard.NodeID]T, failed map[outboard.NodeID]error) {
	var mu sync.Mutex
	var asking sync.WaitGroup
	told, failed = map[outboard.NodeID]T{}, map[outboard.NodeID]error{}
	for _, node := range nodes {
		asking.Go(func() {
			answer, err := ask(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[node] = err
				return
			}
			told[node] = answer
		})
	}
	asking.Wait()
	return told, failed
}

// servePeers offers this process to the tenant's others.
func (t *Tenant) servePeers(ctx context.Context, ready func()) error {
	if t.config.CallsSocket == "" {
		ready()
		<-ctx.Done()
		return nil
	}
	listener, err := fabric.Listen("node:"+t.config.CallsSocket, fabric.WithLogger(t.log))
	if err != nil {
		return err
	}
	server := fabric.NewServer(fabric.WithMaxReceive(largestMessage), fabric.WithMaxSend(largestMessage), fabric.WithLogger(t.log))
	server.RegisterService(t.peerService(), t)
	ready()
	err = server.Run(ctx, listener)
	server.Stop()
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("serve the tenant's other processes: %w", err)
	}
	return nil
}

func (t *Tenant) peerService() *grpc.ServiceDesc {
	method := func(name string, f func(context.Context, []byte, []byte) ([]byte, any, error)) grpc.MethodDesc {
		return grpc.MethodDesc{MethodName: name, Handler: func(_ any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			return answerPeer(ctx, decode, f)
		}}
	}
	return &grpc.ServiceDesc{
		ServiceName: serviceName(t.config.Tenant, t.config.Node),
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{
			method(callMethod, t.stepForPeer), method(readMethod, t.readForPeer), method(keepMethod, t.keepForPeer),
			method(warmMethod, t.warmForPeer), method(lookMethod, t.lookForPeer),
			method(countsMethod, t.countsForPeer), method(stagesMethod, t.stagesForPeer),
			method(placesMethod, t.placesForPeer),
		},
		Streams: []grpc.StreamDesc{{StreamName: logsMethod, ServerStreams: true, Handler: func(_ any, s grpc.ServerStream) error { return t.logsForPeer(s) }}},
	}
}

// answerPeer takes a request apart, and puts the answer together.
func answerPeer(ctx context.Context, decode func(any) error, f func(context.Context, []byte, []byte) ([]byte, any, error)) (any, error) {
	var in wrapperspb.BytesValue
	if err := decode(&in); err != nil {
		return nil, err
	}
	head, err := headOf(ctx)
	if err != nil {
		return nil, err
	}
	body, answer, err := f(ctx, head, in.GetValue())
	if err != nil {
		return nil, status.Error(codeOf(err), err.Error())
	}
	if answer == nil {
		return wrapperspb.Bytes(body), nil
	}
	text, err := json.Marshal(answer)
	if err == nil {
		err = grpc.SetTrailer(ctx, metadata.Pairs(headKey, string(text)))
	}
	return wrapperspb.Bytes(body), err
}

// headOf is a request's head, if a tenant's process has sent it.
func headOf(ctx context.Context) ([]byte, error) {
	// Programs of a node's user come by its socket; whoever can reach the port for
	// plain gRPC has another name.
	if c, ok := fabric.CallerFromContext(ctx); !ok || !strings.HasPrefix(c.Tenant, "uid:") {
		return nil, status.Error(codes.PermissionDenied, "only a tenant's processes may ask this")
	}
	head := metadata.ValueFromIncomingContext(ctx, headKey)
	if len(head) != 1 {
		return nil, status.Error(codes.InvalidArgument, "a request of a tenant's process has one head")
	}
	return []byte(head[0]), nil
}

func codeOf(err error) codes.Code {
	switch outboard.KindOf(err) {
	case outboard.NotFound:
		return codes.NotFound
	case outboard.Busy:
		return codes.ResourceExhausted
	case outboard.Invalid:
		return codes.InvalidArgument
	default:
		return codes.Unavailable
	}
}

// stepForPeer runs a step of an execution of another node.
func (t *Tenant) stepForPeer(ctx context.Context, head, body []byte) ([]byte, any, error) {
	var c engine.FunctionCall
	if err := json.Unmarshal(head, &c); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "call", "%w", err)
	}
	c.Body, c.Node = body, ""
	out, err := steps{t}.callForPeer(ctx, c)
	r := ran{Type: out.Type, Run: out.Run}
	if fault, ok := errors.AsType[*dsl.Error](err); ok {
		r.Fault = fault
	} else if err != nil {
		r.Kind, r.Error = outboard.KindOf(err), err.Error()
	}
	return out.Body, r, nil
}

func (t *Tenant) readForPeer(ctx context.Context, head, _ []byte) ([]byte, any, error) {
	var digest string
	if err := json.Unmarshal(head, &digest); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "read", "%w", err)
	}
	content, err := t.files.readHere(ctx, digest)
	return content, nil, err
}

func (t *Tenant) keepForPeer(ctx context.Context, head, body []byte) ([]byte, any, error) {
	var owner string
	if err := json.Unmarshal(head, &owner); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "keep", "%w", err)
	}
	_, err := t.files.saveHere(ctx, owner, body)
	return nil, nil, err
}

func (t *Tenant) warmForPeer(ctx context.Context, head, _ []byte) ([]byte, any, error) {
	var f target
	if err := json.Unmarshal(head, &f); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "warm", "%w", err)
	}
	return nil, nil, t.warm(ctx, f)
}

func (t *Tenant) lookForPeer(ctx context.Context, head, _ []byte) ([]byte, any, error) {
	var id engine.ID
	if err := json.Unmarshal(head, &id); err != nil {
		return nil, nil, outboard.Errorf(outboard.Invalid, "look", "%w", err)
	}
	return nil, nil, t.engine.Look(ctx, id)
}
