// Package oneshot makes unary calls over streams, for transports that provide streams only.
package oneshot

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

var (
	errNone = status.Error(codes.Internal, "the callee ended the call without a response")
	errMany = status.Error(codes.Internal, "the callee sent more than one response to a unary call")
)

// Exchange sends request on a newly opened stream and waits for the response and the end of
// the call. It takes ownership of request; the caller frees the response.
func Exchange(s call.ClientStream, request *call.Message) (*call.Message, call.End, error) {
	// If the call has ended, Recv returns its status; the errors of Send and CloseSend say less.
	if s.Send(request) == nil {
		_ = s.CloseSend()
	}
	response, err := Only(s.Recv, errNone, errMany)
	end := call.End{Trailer: s.Trailer()}
	// A call that ended before its header arrived has no header.
	if header, err := s.Header(); err == nil {
		end.Header = header
	}
	return response, end, err
}

// Only returns the single message that recv yields before io.EOF. It returns none if recv
// yields no message, and many if it yields more than one.
func Only(recv func() (*call.Message, error), none, many error) (*call.Message, error) {
	m, err := recv()
	if errors.Is(err, io.EOF) {
		return nil, none
	}
	if err != nil {
		return nil, err
	}
	more, err := recv()
	if errors.Is(err, io.EOF) {
		return m, nil
	}
	m.Free()
	if err != nil {
		return nil, err
	}
	more.Free()
	return nil, many
}
