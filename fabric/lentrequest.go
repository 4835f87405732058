package fabric

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// A lentRequest is a request that still belongs to its caller. The handler copies it
// once, straight into its own message; a caller that returns first revokes it.
type lentRequest struct {
	mu      sync.Mutex
	value   any
	revoked bool
}

// copy copies the request into v.
func (l *lentRequest) copy(f *codecState, v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.revoked {
		return context.Canceled
	}
	if done, err := f.copyInto(l.value, v); done {
		return err
	}
	data, err := encodeProto(l.value)
	if err != nil {
		return marshalError(err)
	}
	return f.unpack(&call.Message{Data: nonNil(data)}, v)
}

// revoke waits for a copy under way and forbids later ones.
func (l *lentRequest) revoke() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.revoked = true
}

// localCall is a unary call between a caller and a server in one process.
type localCall struct {
	serverCall
	form    codecState
	request lentRequest
	reply   any
	status  error
}

// direct reports whether the callee is a Server without a codec of its own.
func (t *inProcess) direct() bool { return t.server != nil && t.server.options.codec == nil }

// invoke calls a method of a Server in this process. There is one copy each way.
func (t *inProcess) invoke(ctx context.Context, b *outgoingCall, args, reply any, r *result) error {
	if err := t.ended(); err != nil {
		return err
	}
	request := protoOf(args)
	if request == nil {
		return marshalError(errNoMessage(args))
	}
	if err := b.codec.checkSend(proto.Size(request)); err != nil {
		return err
	}
	c := &localCall{request: lentRequest{value: request}}
	c.server, c.head, c.parent = t.server, &b.head, context.Background()
	if ctx.Done() == nil {
		// The caller's context never ends, so the call needs no goroutine.
		c.serve()
	} else if err := t.await(ctx, c); err != nil {
		return err
	}
	return c.deliver(&b.codec, reply, r)
}

// await runs the handler for a caller whose context may end before the handler returns.
func (t *inProcess) await(ctx context.Context, c *localCall) error {
	c.parent = withoutValues{ctx}
	done := make(chan struct{})
	go func() {
		c.serve()
		close(done)
	}()
	err := t.wait(ctx, done)
	if err != nil {
		c.end()
		c.request.revoke()
	}
	return err
}

// withoutValues is a caller's context without its values: it shows a handler only when the call
// ends.
type withoutValues struct{ context.Context } //nolint:containedctx // this is a context

// Value implements context.Context.
func (withoutValues) Value(any) any { return nil }

// AfterFunc is an optional method that package context calls to save a goroutine.
func (b withoutValues) AfterFunc(f func()) func() bool { return context.AfterFunc(b.Context, f) }

func (c *localCall) deliver(f *codecState, reply any, r *result) error {
	end := c.outcome()
	r.header, r.trailer = end.Header, end.Trailer
	if c.status != nil {
		return c.status
	}
	if done, err := f.copyInto(c.reply, reply); done {
		return err
	}
	data, err := encodeProto(c.reply)
	if err != nil {
		return marshalError(err)
	}
	return f.unpack(&call.Message{Data: nonNil(data)}, reply)
}

// serve runs the server's part of the call.
func (c *localCall) serve() {
	if c.status = c.server.beginCall(); c.status != nil {
		return
	}
	defer c.server.endCall()
	defer c.end()
	c.status = handlerStatus(c.run())
}

func (c *localCall) run() error {
	m, err := c.server.find(c.head.Method)
	if err != nil {
		return err
	}
	if c.form, err = c.server.newCodecState(c.head); err != nil {
		return err
	}
	if m.unary == nil {
		return c.serveStreaming()
	}
	c.reply, err = m.unary.Handler(m.impl, c, c.decode, c.server.unaryServer)
	if c.failure != nil {
		return c.failure
	}
	if err != nil {
		return err
	}
	return c.checkReply()
}

func (c *localCall) decode(v any) error {
	c.failure = c.request.copy(&c.form, v)
	return c.failure
}

func (c *localCall) checkReply() error {
	m := protoOf(c.reply)
	if m == nil {
		return marshalError(errNoMessage(c.reply))
	}
	return c.form.checkSend(proto.Size(m))
}

// serveStreaming serves the call with a handler that expects a stream.
func (c *localCall) serveStreaming() error {
	c.request.mu.Lock()
	request := detach(&call.Message{Value: c.request.value, Encode: encodeProto})
	c.request.mu.Unlock()
	response, end, err := serveSingle(c.parent, c.head, request, c.server.serveStream)
	c.header, c.trailer = end.Header, end.Trailer
	if err == nil {
		c.reply = response.Value
	}
	return err
}
