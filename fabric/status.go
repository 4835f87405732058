package fabric

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// toStatus converts the error of a transport to an error of package status. io.EOF stays.
func toStatus(err error) error {
	if err == nil || err == io.EOF { //nolint:errorlint // io.EOF is the end of a stream only when it is bare
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return status.Error(codes.Internal, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// handlerStatus returns the status of a call whose handler returned err.
func handlerStatus(err error) error {
	if err == nil {
		return nil
	}
	if s, ok := status.FromError(err); ok {
		return s.Err()
	}
	return status.FromContextError(err).Err()
}

// contextStatus returns the status of a call whose context has ended, nil for a live context.
func contextStatus(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return status.FromContextError(err).Err()
	}
	return nil
}
