// Package oneshot makes calls of one message each way over streams, for who has
// nothing shorter.
package oneshot

import (
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/fabric/call"
)

var (
	errNone = status.Error(codes.Internal, "the callee ended without an answer")
	errMany = status.Error(codes.Internal, "the callee answered more than once")
)

// Exchange sends request, which it takes over, on a stream that was just opened, and
// waits for the response and the end. The response is the caller's to free.
func Exchange(s call.ClientStream, request *call.Message) (*call.Message, call.End, error) {
	// What Send and CloseSend say of a call that has ended, Recv says better.
	if s.Send(request) == nil {
		_ = s.CloseSend()
	}
	response, err := Only(s.Recv, errNone, errMany)
	end := call.End{Trailer: s.Trailer()}
	// An end without a header has no other.
	if header, err := s.Header(); err == nil {
		end.Header = header
	}
	return response, end, err
}

// Only is the one message that recv has before its io.EOF. none and many say that there
// is another number of them.
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
