package function

import (
	"context"
	"errors"
	"io"
	"math"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// Stream carries the parts of a request and of its response that pass while the call runs, so that
// neither has to fit into memory. The function's pace is the client's: both methods wait.
type Stream interface {
	// Read reads the request behind Request.Body; io.EOF is its end.
	io.Reader
	// Write sends a part of the response. It must not keep the slice.
	io.Writer
}

// The host functions of streams.
const (
	bodyReadName      = "body_read"
	responseFlushName = "response_flush"
)

// Streams reports whether the function can take requests and give responses as streams: its module
// imports body_read or response_flush.
func (f *Function) Streams() bool {
	for _, i := range f.version.compiled.ImportedFunctions() {
		from, name, _ := i.Import()
		if from == hostModule && (name == bodyReadName || name == responseFlushName) {
			return true
		}
	}
	return false
}

func provideStreams(b wazero.HostModuleBuilder) {
	export(b, bodyReadName, bodyRead, []api.ValueType{i32, i32}, i32)
	export(b, responseFlushName, responseFlush, nil, i32)
}

// bodyRead reads the next part of the request's stream into the function's memory. It waits for one
// byte at least, and returns their number, 0 at the end, or -1 for an error, whose text is the
// result.
func bodyRead(ctx context.Context, m api.Module, stack []uint64) {
	c := invocationOf(ctx)
	size := min(uint32(stack[1]), math.MaxInt32)
	to, ok := m.Memory().Read(uint32(stack[0]), size)
	var n int
	err := errOutside
	if ok {
		n, err = c.readStream(to)
	}
	stack[0] = uint64(uint32(n))
	if c.reportError(err) {
		stack[0] = noRoom
	}
}

// readStream reads from the request's stream. The end is 0 without an error.
func (c *invocation) readStream(to []byte) (n int, err error) {
	if c.stream == nil || len(to) == 0 {
		return 0, nil
	}
	c.whileClientWorks(func() {
		for n == 0 && err == nil {
			n, err = c.stream.Read(to)
		}
	})
	c.copied += int64(n)
	c.slot.meter.chargeBytes(n)
	if n > 0 || errors.Is(err, io.EOF) {
		return n, nil
	}
	return 0, err
}

// responseFlush sends the response written so far. It returns 0, or 1 for an error, whose text is
// the result. A caller that takes no stream gets all of the response at the end.
func responseFlush(ctx context.Context, _ api.Module, stack []uint64) {
	c := invocationOf(ctx)
	stack[0] = done
	if c.reportError(c.flushResponse()) {
		stack[0] = refused
	}
}

var errPlaced = errors.New("the response is a part of the arena: it can't be sent in parts")

// flushResponse sends the response written so far.
func (c *invocation) flushResponse() (err error) {
	switch {
	case c.stream == nil || len(c.response) == 0:
		return nil
	case c.responseAt != nil:
		return errPlaced
	}
	c.whileClientWorks(func() { _, err = c.stream.Write(c.response) })
	c.flushed += len(c.response)
	c.response = c.response[:0]
	return err
}

// whileClientWorks runs f, in which the call waits for its client. That time is not the function's,
// so the deadline moves by it: the stream itself bounds how slow a client may be.
func (c *invocation) whileClientWorks(f func()) {
	c.slot.watch.Leave()
	begin := time.Now()
	f()
	c.slot.meter.deadline = c.slot.meter.deadline.Add(time.Since(begin))
}
