// Package peer carries the calls that the processes of one tenant on different nodes make to
// each other.
package peer

//go:generate ./generate.sh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/app"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/workflow/engine"
	"github.com/outboard-run/outboard/internal/workflow/planner"
)

// maxMessage bounds a request, a result or a file in bytes.
const maxMessage = 1 << 30

// ErrOlder is the error of calling a process that speaks version 1 of the protocol.
var ErrOlder = fmt.Errorf("%w: upgrade the node", app.ErrOlder)

func serviceName(tenant string, node outboard.NodeID) string {
	return "outboard.tenant." + tenant + "." + string(node)
}

// Client calls the tenant's processes on other nodes. Its methods may be called by several
// goroutines.
type Client struct {
	tenant string
	conn   *fabric.ClientConn // nil: the process has no node
}

// Dial returns a Client that calls through the node at a socket, with the credential that the
// node gave this process; without a socket every call fails with the kind Unreachable.
func Dial(tenant, socket, credential string, log *slog.Logger) (*Client, error) {
	if socket == "" {
		return &Client{tenant: tenant}, nil
	}
	conn, err := fabric.Dial("node:"+socket, fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage), fabric.WithLogger(log),
		fabric.WithPerRPCCredentials(offer.Credential(credential)))
	if err != nil {
		return nil, err
	}
	return &Client{tenant: tenant, conn: conn}, nil
}

// Close closes the connection to the node.
func (c *Client) Close() error {
	if c.conn == nil {
		return nil
	}
	return c.conn.Close()
}

// Conn returns the connection to the node, nil for none. Client's Close closes it.
func (c *Client) Conn() grpc.ClientConnInterface {
	if c.conn == nil {
		return nil
	}
	return c.conn
}

var errNoNode = errors.New("this process has no node that could reach it")

func (c *Client) method(node outboard.NodeID, name string) string {
	return "/" + serviceName(c.tenant, node) + "/" + name
}

// invoke calls a method of a node's process.
func (c *Client) invoke(ctx context.Context, node outboard.NodeID, method string, request, reply proto.Message) error {
	op := fmt.Sprintf("node %s", node)
	if c.conn == nil {
		return outboard.Errorf(outboard.Unreachable, op, "%w", errNoNode)
	}
	err := c.conn.Invoke(ctx, c.method(node, method), request, reply)
	if err == nil {
		return nil
	}
	if status.Code(err) == codes.Unimplemented && c.isOlder(ctx, node) {
		err = ErrOlder
	}
	return outboard.Errorf(kindOf(err), op, "%w", err)
}

// isOlder reports whether a node has a process that speaks version 1. A node without a process
// answers every method with UNIMPLEMENTED, a process of version 1 knows Counts.
func (c *Client) isOlder(ctx context.Context, node outboard.NodeID) bool {
	ctx = metadata.AppendToOutgoingContext(ctx, "outboard-head-bin", `""`)
	return c.conn.Invoke(ctx, c.method(node, "Counts"), wrapperspb.Bytes(nil), new(wrapperspb.BytesValue)) == nil
}

func kindOf(err error) outboard.Kind {
	switch status.Code(err) {
	case codes.NotFound:
		return outboard.NotFound
	case codes.ResourceExhausted:
		return outboard.Busy
	default:
		return outboard.Unreachable
	}
}

// RunStep has a node run a step, with its request in c.Body.
func (c *Client) RunStep(ctx context.Context, node outboard.NodeID, call engine.FunctionCall) (engine.Outcome, error) {
	var r StepReply
	if err := c.invoke(ctx, node, "RunStep", stepRequest(&call), &r); err != nil {
		return engine.Outcome{}, err
	}
	o, err := r.outcome()
	o.Run.Copied += int64(len(call.Body) + len(o.Body))
	return o, err
}

// ReadFile returns a file that a node has.
func (c *Client) ReadFile(ctx context.Context, node outboard.NodeID, digest string) ([]byte, error) {
	var f File
	err := c.invoke(ctx, node, "ReadFile", &FileRequest{Digest: digest}, &f)
	return f.GetContent(), err
}

// StoreFile has a node store a file for an owner.
func (c *Client) StoreFile(ctx context.Context, node outboard.NodeID, owner string, content []byte) error {
	return c.invoke(ctx, node, "StoreFile", &StoreFileRequest{Owner: owner, Content: content}, new(StoreFileReply))
}

// Warm has a node create an instance for a future call.
func (c *Client) Warm(ctx context.Context, node outboard.NodeID, f planner.Target) error {
	return c.invoke(ctx, node, "WarmFunction", &FunctionRef{App: f.App, Version: int64(f.Version), Function: f.Function}, new(WarmFunctionReply))
}

// Refresh has a node read again the log of an execution that it runs.
func (c *Client) Refresh(ctx context.Context, node outboard.NodeID, id engine.ID) error {
	return c.invoke(ctx, node, "RefreshExecution", &ExecutionRef{Id: string(id)}, new(RefreshExecutionReply))
}

// Counts returns the counts of an app's functions on a node, of all apps for "".
func (c *Client) Counts(ctx context.Context, node outboard.NodeID, appName string) ([]Counts, error) {
	var r CallCounts
	if err := c.invoke(ctx, node, "CountCalls", &AppFilter{App: appName}, &r); err != nil {
		return nil, err
	}
	return r.counts(), nil
}

// Progress returns a node's progress with the tenant's apps.
func (c *Client) Progress(ctx context.Context, node outboard.NodeID) (map[string]app.Progress, error) {
	var r Progress
	if err := c.invoke(ctx, node, "GetProgress", new(GetProgressRequest), &r); err != nil {
		return nil, err
	}
	all := map[string]app.Progress{}
	for name, p := range r.GetApps() {
		all[name] = app.Progress{Built: int(p.GetBuilt()), Serving: int(p.GetServing()), Failure: p.GetFailure()}
	}
	return all, nil
}

// LocateSteps returns the nodes on which the steps in progress of an execution run, by their
// paths. node is the execution's.
func (c *Client) LocateSteps(ctx context.Context, node outboard.NodeID, id engine.ID) (map[string]outboard.NodeID, error) {
	var r StepLocations
	if err := c.invoke(ctx, node, "LocateSteps", &ExecutionRef{Id: string(id)}, &r); err != nil {
		return nil, err
	}
	all := map[string]outboard.NodeID{}
	for path, node := range r.GetNodes() {
		all[path] = outboard.NodeID(node)
	}
	return all, nil
}

// Logs calls f with lines of an app's log on a node, and without lines when all kept lines have
// been sent. An error of f ends the stream.
func (c *Client) Logs(ctx context.Context, node outboard.NodeID, q *LogQuery, f func([]client.LogLine) error) error {
	if c.conn == nil {
		return errNoNode
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := c.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true}, c.method(node, "StreamLogs"))
	if err != nil {
		return err
	}
	if err := errors.Join(s.SendMsg(q), s.CloseSend()); err != nil {
		return err
	}
	for {
		var m LogBatch
		if err := s.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if err := f(m.lines()); err != nil {
			return err
		}
	}
}

// CallAll calls f for several nodes concurrently. failed has the errors by node.
func CallAll[T any](
	ctx context.Context, nodes []outboard.NodeID, f func(context.Context, outboard.NodeID) (T, error),
) (replies map[outboard.NodeID]T, failed map[outboard.NodeID]error) {
	var mu sync.Mutex
	var calls sync.WaitGroup
	replies, failed = map[outboard.NodeID]T{}, map[outboard.NodeID]error{}
	for _, node := range nodes {
		calls.Go(func() {
			reply, err := f(ctx, node)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failed[node] = err
				return
			}
			replies[node] = reply
		})
	}
	calls.Wait()
	return replies, failed
}
