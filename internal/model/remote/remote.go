// Package remote carries requests for models between the nodes of a pool, over the fabric, and the
// reports by which nodes choose each other.
package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/fabric"
	"github.com/outboard-run/outboard/internal/fabric/offer"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
	"github.com/outboard-run/outboard/internal/model/queue"
	"github.com/outboard-run/outboard/internal/model/serve"
	"github.com/outboard-run/outboard/internal/pool/state"
)

const (
	// maxMessage bounds a request or a result in bytes.
	maxMessage = 1 << 30
	// Identity is the identity of the nodes' own requests for models.
	Identity = "node:models"

	// ServicePrefix is the prefix of the name of the service that each node offers to the others.
	ServicePrefix = "outboard.models."

	reportPrefix = "modelreports/"
	// reportTTL is the time after which a silent node's report expires, reportRenewal the interval
	// at which an unchanged report is published.
	reportTTL     = 30 * time.Second
	reportRenewal = 10 * time.Second
)

func serviceName(node outboard.NodeID) string { return ServicePrefix + string(node) }

// Options configure Peers.
type Options struct {
	Self outboard.NodeID
	// Socket is the node's socket for calls; Credential proves there that a call is the node's own.
	Socket, Credential string
	State              *state.State
	// Members returns the live nodes.
	Members func() []outboard.Node
	Log     *slog.Logger
}

// Peers are the other nodes of the pool. It implements serve.Peers and artifact.Source.
type Peers struct {
	opts    Options
	conn    *fabric.ClientConn
	view    *state.Follower
	reports map[outboard.NodeID]serve.Report // under view's lock

	last      []byte // report
	published time.Time
}

var _ serve.Peers = (*Peers)(nil)

// Open follows the reports of the other nodes and connects to the node's own socket for calls.
func Open(ctx context.Context, opts Options) (*Peers, error) {
	p := &Peers{opts: opts, reports: map[outboard.NodeID]serve.Report{}}
	var err error
	p.conn, err = fabric.Dial("node:"+opts.Socket, fabric.WithMaxReceive(maxMessage), fabric.WithMaxSend(maxMessage),
		fabric.WithLogger(opts.Log), fabric.WithPerRPCCredentials(offer.Credential(opts.Credential)))
	if err != nil {
		return nil, err
	}
	if p.view, err = state.Follow(ctx, opts.State, opts.Log, p.apply); err != nil {
		return nil, errors.Join(fmt.Errorf("follow the models of other nodes: %w", err), p.conn.Close())
	}
	return p, nil
}

// Close disconnects.
func (p *Peers) Close() error { return errors.Join(p.view.Close(), p.conn.Close()) }

// maxReport bounds a report, in bytes.
const maxReport = 512 << 10

func (p *Peers) apply(e state.Entry) (bool, error) {
	name, ok := strings.CutPrefix(e.Key, reportPrefix)
	if !ok {
		return false, nil
	}
	node := outboard.NodeID(name)
	if e.Deleted {
		delete(p.reports, node)
		return true, nil
	}
	var r serve.Report
	if len(e.Value) > maxReport {
		return false, fmt.Errorf("a report of %d bytes", len(e.Value))
	}
	if err := json.Unmarshal(e.Value, &r); err != nil {
		return false, err
	}
	r.Node = node
	p.reports[node] = r
	return true, nil
}

// Changed implements serve.Peers.
func (p *Peers) Changed() <-chan struct{} { return p.view.Changed() }

// Reports implements serve.Peers.
func (p *Peers) Reports() []serve.Report {
	alive := map[outboard.NodeID]bool{}
	for _, n := range p.opts.Members() {
		alive[n.ID] = true
	}
	p.view.Lock()
	defer p.view.Unlock()
	var list []serve.Report
	for node, r := range p.reports {
		if node != p.opts.Self && alive[node] {
			list = append(list, r)
		}
	}
	return list
}

// Publish implements serve.Peers. It writes a report only if it has changed or its renewal is due: also
// that of a node without models, which another node may choose for the pool's first one. Only one
// goroutine may call it.
func (p *Peers) Publish(ctx context.Context, r serve.Report) error {
	r.Free &^= 256<<20 - 1 // small changes are not published
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if bytes.Equal(text, p.last) && time.Since(p.published) < reportRenewal {
		return nil
	}
	if _, err = p.opts.State.Put(ctx, reportPrefix+string(p.opts.Self), text, reportTTL); err == nil {
		p.last, p.published = text, time.Now()
	}
	return err
}

func (p *Peers) invoke(ctx context.Context, node outboard.NodeID, method string, request, reply proto.Message) error {
	err := p.conn.Invoke(ctx, "/"+serviceName(node)+"/"+method, request, reply)
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errorOf(node, err)
}

// errorOf returns the error of a call to a node. A request whose deadline has passed, which that node
// may notice first, is not worth another attempt. A node that refuses this node, or may not execute
// the model, says nothing about the client, whose key this node has checked: another node may be
// tried.
func errorOf(node outboard.NodeID, err error) error {
	if err == nil {
		return nil
	}
	if status.Code(err) == codes.DeadlineExceeded {
		return fmt.Errorf("node %s: %w", node, context.DeadlineExceeded)
	}
	if status.Code(err) == crashCode {
		return &engine.Crash{Reason: outboard.Errorf(outboard.Unreachable, "node "+string(node), "%s", status.Convert(err).Message())}
	}
	kind := outboard.Unreachable
	for k, code := range statusCodes {
		if status.Code(err) == code && k != outboard.Denied {
			kind = k
		}
	}
	return outboard.Errorf(kind, "node "+string(node), "%s", status.Convert(err).Message())
}

// statusCodes are the gRPC codes for the kinds of errors between nodes; all others are UNAVAILABLE,
// after which a caller may try another node.
//
//nolint:gochecknoglobals // a table
var statusCodes = map[outboard.Kind]codes.Code{
	outboard.Invalid: codes.InvalidArgument, outboard.NotFound: codes.NotFound, outboard.Exhausted: codes.ResourceExhausted,
	outboard.Denied: codes.PermissionDenied, outboard.Other: codes.Internal, outboard.Conflict: codes.Aborted,
	outboard.NoDevice: codes.OutOfRange, // a code that the fabric itself never uses
}

// crashCode is the gRPC code of an engine.Crash between nodes. For nodes of earlier releases it is a
// code like UNAVAILABLE.
const crashCode = codes.DataLoss

func statusOf(err error) error {
	if err == nil {
		return nil
	}
	code, ok := statusCodes[outboard.KindOf(err)]
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		code = codes.DeadlineExceeded
	case errors.Is(err, context.Canceled):
		code = codes.Canceled
	case engine.IsCrash(err) && outboard.KindOf(err) == outboard.Unreachable:
		code = crashCode
	case !ok:
		code = codes.Unavailable
	}
	return status.Error(code, err.Error())
}

// Parameters of a request by which a node forwards its serve.Sequence, and that it is to be executed
// alone.
const (
	alone          = "alone"
	sequenceID     = "sequence_id"
	sequenceClient = "sequence_client"
	sequenceStart  = "sequence_start"
	sequenceEnd    = "sequence_end"
)

// Infer implements serve.Peers.
func (p *Peers) Infer(ctx context.Context, node outboard.NodeID, r *serve.Request) (*serve.Response, error) {
	var reply inference.ModelInferResponse
	if err := p.invoke(ctx, node, "Infer", newInferRequest(r), &reply); err != nil {
		return nil, err
	}
	return readResponse(node, &reply)
}

func newInferRequest(r *serve.Request) *inference.ModelInferRequest {
	request := &inference.ModelInferRequest{
		ModelName: r.Model, ModelVersion: r.Version,
		Parameters: map[string]*inference.InferParameter{
			"priority": {ParameterChoice: &inference.InferParameter_Int64Param{Int64Param: int64(r.Priority)}},
		},
	}
	if r.Alone {
		request.Parameters[alone] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: true}}
	}
	if q := r.Sequence; q.ID != "" {
		for name, value := range map[string]string{sequenceID: q.ID, sequenceClient: q.Client} {
			request.Parameters[name] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: value}}
		}
		for name, value := range map[string]bool{sequenceStart: q.Start, sequenceEnd: q.End} {
			request.Parameters[name] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_BoolParam{BoolParam: value}}
		}
	}
	if q := r.Sequence; q.ID == "" && q.Client != "" {
		request.Parameters[sequenceClient] = &inference.InferParameter{ParameterChoice: &inference.InferParameter_StringParam{StringParam: q.Client}}
	}
	request.AddTensors(r.Inputs, r.Outputs)
	return request
}

func readResponse(node outboard.NodeID, reply *inference.ModelInferResponse) (*serve.Response, error) {
	response := &serve.Response{Model: reply.GetModelName(), Node: node}
	var err error
	if response.Version, err = strconv.Atoi(reply.GetModelVersion()); err != nil || len(reply.GetOutputs()) != len(reply.GetRawOutputContents()) {
		return nil, outboard.Errorf(outboard.Protocol, "node "+string(node), "a malformed reply")
	}
	// The node is not trusted: what uses the outputs relies on their sizes.
	if response.Outputs, err = reply.Tensors(); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, "node "+string(node), "%w", err)
	}
	response.Times = queue.Times{
		Queue:   time.Duration(reply.GetParameters()["queue_ns"].GetInt64Param()),
		Compute: time.Duration(reply.GetParameters()["compute_ns"].GetInt64Param()),
		Copies: queue.Copies{
			In:  time.Duration(reply.GetParameters()["copy_in_ns"].GetInt64Param()),
			Out: time.Duration(reply.GetParameters()["copy_out_ns"].GetInt64Param()),
		},
	}
	return response, nil
}

// Load implements serve.Peers.
func (p *Peers) Load(ctx context.Context, node outboard.NodeID, name string, version int) error {
	request := &inference.ModelReadyRequest{Name: name, Version: strconv.Itoa(version)}
	return p.invoke(ctx, node, "Load", request, new(inference.ModelReadyResponse))
}

// keepIdle is the parameter of the call Keep: a duration in nanoseconds.
const keepIdle = "idle_ns"

// Keep implements serve.Peers.
func (p *Peers) Keep(ctx context.Context, node outboard.NodeID, name string, idle time.Duration) error {
	request := &inference.RepositoryModelUnloadRequest{ModelName: name, Parameters: map[string]*inference.ModelRepositoryParameter{
		keepIdle: {ParameterChoice: &inference.ModelRepositoryParameter_Int64Param{Int64Param: int64(idle)}},
	}}
	return p.invoke(ctx, node, "Keep", request, new(inference.RepositoryModelUnloadResponse))
}

// Copies implements artifact.Source: it yields the copies of the other nodes that have a file.
func (p *Peers) Copies(ctx context.Context, digest string) iter.Seq2[io.ReadCloser, error] {
	return func(yield func(io.ReadCloser, error) bool) {
		var last error = outboard.Errorf(outboard.NotFound, "", "no other node has the artifact %s", digest)
		for _, n := range p.opts.Members() {
			if n.ID == p.opts.Self {
				continue
			}
			r, err := p.openFile(ctx, n.ID, digest)
			if outboard.KindOf(err) == outboard.NotFound {
				continue
			}
			if err != nil {
				last = err
			} else if !yield(r, nil) {
				return
			}
		}
		yield(nil, last)
	}
}

// openFile opens a file of another node.
func (p *Peers) openFile(ctx context.Context, node outboard.NodeID, digest string) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancel(ctx)
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "ReadFile", ServerStreams: true}, "/"+serviceName(node)+"/ReadFile")
	if err == nil {
		err = errors.Join(stream.SendMsg(wrapperspb.String(digest)), stream.CloseSend())
	}
	if err == nil {
		err = stream.RecvMsg(new(wrapperspb.BytesValue)) // an empty part: the node has the file
	}
	if err != nil {
		cancel()
		return nil, errorOf(node, err)
	}
	return newFileReader(ctx, stream, cancel, node), nil
}

// Text implements serve.Peers.
func (p *Peers) Text(node outboard.NodeID, name string, version int, info engine.Info) engine.TextModel {
	return &textModel{peers: p, node: node, name: name, version: version, info: info}
}
