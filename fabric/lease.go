package fabric

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/fabric/call"
)

// A lease is a request that still belongs to its caller. The handler copies it
// once, straight into its own message; a caller who leaves first takes it back.
type lease struct {
	mu    sync.Mutex
	value any
	back  bool
}

// copy copies the request into v.
func (l *lease) copy(f *form, v any) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.back {
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

// takeBack waits for a copy under way and allows no other.
func (l *lease) takeBack() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.back = true
}

// localCall is a unary call between a caller and a server in one process.
type localCall struct {
	serverCall
	form   form
	lease  lease
	answer any
	status error
}

// direct says that the callee is a server of ours that wants no codec of its own.
func (t *inProcess) direct() bool { return t.server != nil && t.server.options.codec == nil }

// invoke calls a method of our own kind of server. There is one copy each way.
func (t *inProcess) invoke(ctx context.Context, b *beginning, args, reply any, r *result) error {
	if err := t.ended(); err != nil {
		return err
	}
	request := protoOf(args)
	if request == nil {
		return marshalError(errNoMessage(args))
	}
	if err := b.form.checkSend(proto.Size(request)); err != nil {
		return err
	}
	c := &localCall{lease: lease{value: request}}
	c.server, c.head, c.parent = t.server, &b.head, context.Background()
	if ctx.Done() == nil {
		// Nothing makes this caller leave: it needs no goroutine.
		c.serve()
	} else if err := t.await(ctx, c); err != nil {
		return err
	}
	return c.deliver(&b.form, reply, r)
}

// await runs the handler for a caller who may leave before it returns.
func (t *inProcess) await(ctx context.Context, c *localCall) error {
	c.parent = bare{ctx}
	done := make(chan struct{})
	go func() {
		c.serve()
		close(done)
	}()
	err := t.wait(ctx, done)
	if err != nil {
		c.end()
		c.lease.takeBack()
	}
	return err
}

// bare is a caller's context without its values: a handler sees only when the
// call ends.
type bare struct{ context.Context } //nolint:containedctx // this is a context

// Value implements context.Context.
func (bare) Value(any) any { return nil }

// AfterFunc is what package context asks for, where it would need a goroutine.
func (b bare) AfterFunc(f func()) func() bool { return context.AfterFunc(b.Context, f) }

func (c *localCall) deliver(f *form, reply any, r *result) error {
	end := c.said()
	r.header, r.trailer = end.Header, end.Trailer
	if c.status != nil {
		return c.status
	}
	if done, err := f.copyInto(c.answer, reply); done {
		return err
	}
	data, err := encodeProto(c.answer)
	if err != nil {
		return marshalError(err)
	}
	return f.unpack(&call.Message{Data: nonNil(data)}, reply)
}

// serve is the server's part.
func (c *localCall) serve() {
	if c.status = c.server.enter(); c.status != nil {
		return
	}
	defer c.server.leave()
	defer c.end()
	c.status = handlerStatus(c.run())
}

func (c *localCall) run() error {
	m, err := c.server.find(c.head.Method)
	if err != nil {
		return err
	}
	if c.form, err = c.server.form(c.head); err != nil {
		return err
	}
	if m.unary == nil {
		return c.solo()
	}
	c.answer, err = m.unary.Handler(m.impl, c, c.decode, c.server.unaryServer)
	if c.response != nil {
		return c.response
	}
	if err != nil {
		return err
	}
	return c.checkAnswer()
}

func (c *localCall) decode(v any) error {
	c.response = c.lease.copy(&c.form, v)
	return c.response
}

func (c *localCall) checkAnswer() error {
	m := protoOf(c.answer)
	if m == nil {
		return marshalError(errNoMessage(c.answer))
	}
	return c.form.checkSend(proto.Size(m))
}

// solo serves the call with a handler that wants a stream.
func (c *localCall) solo() error {
	c.lease.mu.Lock()
	request := keep(&call.Message{Value: c.lease.value, Encode: encodeProto})
	c.lease.mu.Unlock()
	response, end, err := solo(c.parent, c.head, request, c.server.serveStream)
	c.header, c.trailer = end.Header, end.Trailer
	if err == nil {
		c.answer = response.Value
	}
	return err
}
