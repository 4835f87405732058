package models

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/model/openai"
)

var _ function.TextModel = (*model)(nil)

// Complete implements function.TextModel. The node reads the request.
func (m *model) Complete(ctx context.Context, request []byte) (function.TextStream, error) {
	if m.models.conn == nil {
		return nil, errNoNode
	}
	encoded, err := json.Marshal(openai.ChatCall{Model: m.name, Request: request})
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "", "the request is no JSON: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	stream, err := m.models.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: openai.StreamMethod, ServerStreams: true}, "/"+openai.ServiceName+"/"+openai.StreamMethod)
	if err == nil {
		err = errors.Join(stream.SendMsg(wrapperspb.Bytes(encoded)), stream.CloseSend())
	}
	if err != nil && !errors.Is(err, io.EOF) { // io.EOF: the stream has ended, Next has the reason
		cancel()
		return nil, errorOf(err)
	}
	return &textStream{ctx, stream, cancel}, nil
}

// A textStream is a response that a node generates.
type textStream struct {
	ctx    context.Context //nolint:containedctx // the stream's own ends with the stream, too
	stream grpc.ClientStream
	cancel context.CancelFunc
}

// Next implements function.TextStream.
func (s *textStream) Next() ([]byte, error) {
	var chunk wrapperspb.BytesValue
	err := s.stream.RecvMsg(&chunk)
	switch {
	case errors.Is(err, io.EOF):
		return nil, io.EOF
	case err != nil && s.ctx.Err() != nil:
		return nil, context.Cause(s.ctx)
	case err != nil:
		return nil, errorOf(err)
	}
	return chunk.GetValue(), nil
}

// Close implements function.TextStream.
func (s *textStream) Close() { s.cancel() }
