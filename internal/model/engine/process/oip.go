package process

import (
	"context"
	"crypto/tls"
	"errors"
	"net/url"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/bounded"
	"github.com/outboard-run/outboard/internal/model/oip/inference"
)

// maxTensorMessage bounds a message to or from a server of the Open Inference Protocol, in bytes.
const maxTensorMessage = 256 << 20

// An oipClient calls a server of the Open Inference Protocol over gRPC: of its two interfaces the one
// whose tensors are binary with every server, and whose calls the servers notice to be cancelled.
type oipClient struct{ *grpc.ClientConn }

// dialOIP returns a client of the server at an address, which it does not connect to yet.
func dialOIP(address string) (oipClient, error) {
	u, err := url.Parse(address)
	if err != nil {
		return oipClient{}, err
	}
	secure := insecure.NewCredentials()
	if u.Scheme == "grpcs" {
		secure = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	conn, err := grpc.NewClient("dns:///"+u.Host, grpc.WithTransportCredentials(secure), grpc.WithDisableServiceConfig(),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxTensorMessage), grpc.MaxCallSendMsgSize(maxTensorMessage)))
	return oipClient{conn}, err
}

// isConnected reports whether the client has a connection to the server: if it has one after a call
// has failed, the server has refused the call.
func (c oipClient) isConnected(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, stateDelay)
	defer cancel()
	return c.GetState() == connectivity.Ready && !c.WaitForStateChange(ctx, connectivity.Ready)
}

// stateDelay is the most time after which the client reports that its connection has ended.
const stateDelay = 5 * time.Millisecond

// The service of the protocol, and the one in which MLServer has the extension model_repository.
const (
	oipService        = "inference.GRPCInferenceService"
	repositoryService = "inference.model_repository.ModelRepositoryService"
)

// call calls a method of the protocol's service.
func (c oipClient) call(ctx context.Context, method string, request, reply proto.Message) error {
	return c.callService(ctx, oipService, method, request, reply)
}

// callService calls a method. A reply that would take much more memory than its message is refused.
func (c oipClient) callService(ctx context.Context, service, method string, request, reply proto.Message) error {
	message := bounded.NewMessage(reply)
	err := c.Invoke(ctx, "/"+service+"/"+method, request, message)
	if err != nil && isExpiring(ctx) {
		<-ctx.Done()
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return oipError(method, err)
	}
	if err := message.Refused(); err != nil {
		return outboard.Errorf(outboard.Protocol, "model server", "its reply to %s: %w", method, err)
	}
	return nil
}

// isExpiring reports whether a context is about to end: the server, which knows its deadline, may end
// the call some time before.
func isExpiring(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && time.Until(deadline) < clockLead
}

// clockLead is the most time by which a server's timer may be early.
const clockLead = 20 * time.Millisecond

// oipKinds are the kinds of the errors of servers. A server whose queue is full answers UNAVAILABLE, as
// gRPC does for a server that can't be reached.
//
//nolint:gochecknoglobals // a table
var oipKinds = map[codes.Code]outboard.Kind{
	codes.InvalidArgument: outboard.Invalid, codes.FailedPrecondition: outboard.Invalid, codes.OutOfRange: outboard.Invalid, codes.NotFound: outboard.NotFound,
	codes.ResourceExhausted: outboard.Exhausted, codes.Unavailable: outboard.Unreachable, codes.Unimplemented: outboard.Protocol,
	codes.PermissionDenied: outboard.Denied, codes.Unauthenticated: outboard.Denied,
}

// oipError returns the error of a call.
func oipError(method string, err error) error {
	s := status.Convert(err)
	text := s.Message()
	text = strings.ToValidUTF8(text[:min(len(text), maxReason)], "?")
	return outboard.Errorf(oipKinds[s.Code()], "model server", "%s: %w", method, &oipStatus{s.Code(), text})
}

// An oipStatus is the status of a call that failed.
type oipStatus struct {
	code codes.Code
	text string
}

func (s *oipStatus) Error() string { return s.text }

// isUnimplemented reports whether a server lacks an extension of the protocol.
func isUnimplemented(err error) bool {
	s, ok := errors.AsType[*oipStatus](err)
	return ok && s.code == codes.Unimplemented
}

// models returns the server's models, once for each version.
func (c oipClient) models(ctx context.Context) ([]*inference.RepositoryIndexResponse_ModelIndex, error) {
	var index inference.RepositoryIndexResponse
	err := c.call(ctx, "RepositoryIndex", &inference.RepositoryIndexRequest{}, &index)
	if isUnimplemented(err) {
		err = c.callService(ctx, repositoryService, "RepositoryIndex", &inference.RepositoryIndexRequest{}, &index)
	}
	return index.GetModels(), err
}

// modelName returns the name of a server's only model.
func (c oipClient) modelName(ctx context.Context) (string, error) {
	list, err := c.models(ctx)
	if isUnimplemented(err) {
		return "", outboard.Errorf(outboard.Invalid, "model server", "it does not list its models: name one as `model` in the server's definition")
	}
	if err != nil {
		return "", err
	}
	var names []string
	for _, m := range list {
		if !slices.Contains(names, m.GetName()) {
			names = append(names, m.GetName())
		}
	}
	if len(names) != 1 {
		return "", outboard.Errorf(outboard.Invalid, "model server", "it has %d models (%.200s): name one as `model` in the server's definition", len(names), strings.Join(names, ", "))
	}
	return names[0], nil
}

// loadFailure returns the reason for which the server has not loaded a model, "" if there is none or
// the server does not report it.
func (c oipClient) loadFailure(ctx context.Context, name string) string {
	list, err := c.models(ctx)
	if err != nil {
		return ""
	}
	for _, m := range list {
		if m.GetName() == name && m.GetState() == "UNAVAILABLE" && m.GetReason() != "unloaded" {
			return strings.ToValidUTF8(m.GetReason(), "?")
		}
	}
	return ""
}

// extensions returns the extensions of the protocol that the server has.
func (c oipClient) extensions(ctx context.Context) ([]string, error) {
	var server inference.ServerMetadataResponse
	err := c.call(ctx, "ServerMetadata", &inference.ServerMetadataRequest{}, &server)
	return server.GetExtensions(), err
}

// maxBatch returns the most rows of a batch by the model's configuration, and whether the server has
// the extension.
func (c oipClient) maxBatch(ctx context.Context, name string) (rows int, known bool, err error) {
	var reply inference.ModelConfigResponse
	err = c.call(ctx, "ModelConfig", &inference.ModelConfigRequest{Name: name}, &reply)
	if isUnimplemented(err) {
		return 0, false, nil
	}
	return int(reply.GetConfig().GetMaxBatchSize()), err == nil, err
}
