package remote

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
)

// readAhead is the number of parts of a file that are received while one is hashed and written.
const readAhead = 4

// A fileReader reads the parts of a file while it receives the next ones. One goroutine at a time
// may use it.
type fileReader struct {
	parts     chan []byte
	receiving sync.WaitGroup
	cancel    context.CancelFunc
	err       error // reason that there are no more parts; set before parts is closed
	rest      []byte
}

// newFileReader reads a stream of parts. cancel cancels ctx, which is the stream's context.
func newFileReader(ctx context.Context, stream grpc.ClientStream, cancel context.CancelFunc, node outboard.NodeID) *fileReader {
	r := &fileReader{parts: make(chan []byte, readAhead), cancel: cancel}
	r.receiving.Go(func() {
		defer close(r.parts)
		for {
			part := new(wrapperspb.BytesValue)
			if err := stream.RecvMsg(part); err != nil {
				if r.err = io.EOF; !errors.Is(err, io.EOF) {
					r.err = errorOf(node, err)
				}
				return
			}
			select {
			case r.parts <- part.GetValue():
			case <-ctx.Done():
				r.err = context.Cause(ctx)
				return
			}
		}
	})
	return r
}

// Read implements io.Reader.
func (r *fileReader) Read(b []byte) (int, error) {
	for len(r.rest) == 0 {
		part, ok := <-r.parts
		if !ok {
			return 0, r.err
		}
		r.rest = part
	}
	n := copy(b, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer. It waits until the receiving goroutine has ended.
func (r *fileReader) Close() error {
	r.cancel()
	r.receiving.Wait()
	return nil
}
