package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// An Input is a tensor whose data are in several parts, such as the requests of a batch.
type Input struct {
	Name  string
	Type  model.DataType
	Shape []int64
	Parts [][]byte
}

func (in *Input) size() int {
	n := 0
	for _, part := range in.Parts {
		n += len(part)
	}
	return n
}

// check returns an error if the data does not have the size of the shape.
func (in *Input) check() error {
	n, ok := model.Elements(in.Shape)
	if size := in.size(); !ok || n > maxSegment || len(in.Shape) > maxRank || in.Type != model.Bytes && size != n*in.Type.Size() {
		return outboard.Errorf(outboard.Invalid, "infer", "input %q: %d bytes of data do not fit its shape %v of %v", in.Name, size, in.Shape, in.Type)
	}
	return nil
}

// tensorClient is the node's end of a tensorServer.
type tensorClient struct {
	worker  *Worker
	channel channel
	replies replyReader
	// outputs is the largest size of a call's outputs so far, in bytes.
	outputs atomic.Int64

	mu      sync.Mutex
	closed  error
	last    uint64
	calls   map[uint64]*tensorCall
	free    []*segment // the most recently used last
	pooled  int        // bytes of free
	extras  int        // segments that the worker created: a process may have some 65,000 mappings
	sending sync.WaitGroup
}

// A tensorCall waits for its reply.
type tensorCall struct {
	memory *segment
	extra  []*segment // segments that the worker created
	reply  chan *reply
	// abandoned is set when the caller no longer waits; the reply then frees the memory.
	abandoned bool
	hung      *time.Timer
}

// maxPooled bounds the memory that is kept for later calls, in bytes.
const maxPooled = 256 << 20

func newTensorClient(w *Worker, ring *shm.Ring) *tensorClient {
	c := &tensorClient{worker: w, channel: channel{ring: ring}, calls: map[uint64]*tensorCall{}}
	c.replies.start(c)
	return c
}

// Infer implements engine.TensorModel.
func (w *Worker) Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	list := make([]Input, len(inputs))
	for i := range inputs {
		t := &inputs[i]
		list[i] = Input{t.Name, t.Type, t.Shape, [][]byte{t.Data}}
	}
	results, _, err := w.InferParts(ctx, model.Sequence{}, list, outputs)
	return results, err
}

// Copies are the times for copying a call's inputs to the memory that the worker reads, and its
// outputs from the memory that the worker has written.
type Copies struct {
	In, Out time.Duration
}

// InferParts is Infer with inputs in parts, which are copied once, to the memory from which the
// engine reads them. It also returns the times for copying. A request of a sequence is executed as such
// if the model is stateful.
func (w *Worker) InferParts(ctx context.Context, sequence model.Sequence, inputs []Input, outputs []string) ([]model.Tensor, Copies, error) {
	if w.tensors == nil {
		return nil, Copies{}, outboard.Errorf(outboard.Invalid, "infer", "the model takes no tensors")
	}
	return w.tensors.infer(ctx, sequence, inputs, outputs)
}

func (c *tensorClient) infer(ctx context.Context, sequence model.Sequence, inputs []Input, outputs []string) (_ []model.Tensor, copies Copies, _ error) {
	if err := ctx.Err(); err != nil {
		return nil, copies, context.Cause(ctx)
	}
	capacity := 0
	for i := range inputs {
		if err := inputs[i].check(); err != nil {
			return nil, copies, err
		}
		capacity = align(capacity) + inputs[i].size()
	}
	memory, err := c.acquire(ctx, align(capacity)+int(c.outputs.Load())+minSegment/2)
	if err != nil {
		return nil, copies, c.worker.explain(err)
	}
	began := time.Now()
	r := request{op: opInfer, segment: memory.id, sequence: sequence, outputs: outputs, outputOffset: uint64(align(capacity))}
	for i, at := 0, 0; i < len(inputs); i++ {
		in := &inputs[i]
		at = align(at)
		p := placed{Tensor: model.Tensor{Name: in.Name, Type: in.Type, Shape: in.Shape}, offset: uint64(at)}
		for _, part := range in.Parts {
			at += copy(memory.mem[at:], part)
		}
		p.size = uint64(at) - p.offset
		r.inputs = append(r.inputs, p)
	}
	copies.In = time.Since(began)
	call := &tensorCall{memory: memory, reply: make(chan *reply, 1)}
	answer, err := c.call(ctx, &r, call)
	if err != nil {
		return nil, copies, err
	}
	began = time.Now()
	results, err := c.results(call, answer)
	copies.Out = time.Since(began)
	return results, copies, err
}

// call sends a request and waits for its reply, or until ctx ends.
func (c *tensorClient) call(ctx context.Context, r *request, call *tensorCall) (*reply, error) {
	if err := c.register(r, call); err != nil {
		c.recycle(call)
		return nil, err
	}
	err := c.channel.send(r)
	if err == nil {
		c.replies.awaitReply(ctx, call)
	}
	c.sending.Done()
	if err != nil {
		c.forget(r.id)
		return nil, c.failure(err)
	}
	select {
	case answer := <-call.reply:
		return answer, nil
	case <-c.worker.done:
		if answer := c.abandon(call); answer != nil {
			return answer, nil
		}
		return nil, c.worker.crash // the memory is freed with the client's memory
	case <-ctx.Done():
		if answer := c.abandon(call); answer != nil {
			return answer, nil
		}
		c.cancel(r.id, call)
		return nil, context.Cause(ctx)
	}
}

// failure returns the reason of the process's end if it has ended, and err otherwise.
func (c *tensorClient) failure(err error) error {
	select {
	case <-c.worker.done:
		return c.worker.exitReason
	default:
		return err
	}
}

// register assigns a number to a call. The caller calls sending.Done when it no longer uses the
// ring.
func (c *tensorClient) register(r *request, call *tensorCall) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return c.closed
	}
	if isClosed(c.worker.done) { // it has not begun to execute the call
		return c.worker.exitReason
	}
	c.last++
	r.id = c.last
	c.calls[r.id] = call
	c.sending.Add(1)
	return nil
}

// outstanding reports whether replies are to come.
func (c *tensorClient) outstanding() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.calls) > 0
}

// forget frees the memory of a call that was not sent.
func (c *tensorClient) forget(id uint64) {
	c.mu.Lock()
	call := c.calls[id]
	delete(c.calls, id)
	c.mu.Unlock()
	if call != nil {
		c.recycle(call)
	}
}

// abandon makes the reply to a call free the call's memory, or returns the reply if it has arrived: the
// caller then frees the memory.
func (c *tensorClient) abandon(call *tensorCall) *reply {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case answer := <-call.reply:
		return answer
	default:
		call.abandoned = true
		return nil
	}
}

// cancel cancels a call that was abandoned. Its memory is in use until the reply; a worker that does not
// reply is killed.
func (c *tensorClient) cancel(id uint64, call *tensorCall) {
	c.mu.Lock()
	if c.calls[id] == nil { // the reply has arrived
		c.mu.Unlock()
		return
	}
	call.hung = time.AfterFunc(cancelGrace, func() { c.worker.Kill(errHung) })
	c.sending.Add(1)
	c.mu.Unlock()
	defer c.sending.Done()
	_ = c.channel.send(&request{op: opCancel, id: id}) // the worker may have ended
}

// handle delivers a reply.
func (c *tensorClient) handle(d wire.Decoder) error {
	answer := &reply{}
	if err := answer.decode(&d); err != nil {
		return err
	}
	c.mu.Lock()
	call := c.calls[answer.id]
	if call == nil {
		c.mu.Unlock()
		return errFrame
	}
	delete(c.calls, answer.id)
	if call.hung != nil {
		call.hung.Stop()
	}
	abandoned := call.abandoned
	if !abandoned {
		call.reply <- answer // has room for it
	}
	c.mu.Unlock()
	if abandoned {
		c.recycle(call)
	}
	return nil
}

// results copies the outputs of a call and frees its memory.
func (c *tensorClient) results(call *tensorCall, answer *reply) ([]model.Tensor, error) {
	defer c.recycle(call)
	if answer.failure != "" {
		return nil, &outboard.Error{Kind: outboard.Kind(answer.kind), Err: errors.New(answer.failure)}
	}
	outputs, total := make([]model.Tensor, len(answer.outputs)), uint64(0)
	for i := range answer.outputs {
		// Several outputs may lie in the same memory, whose size does not bound them.
		if total += uint64(align(int(min(answer.outputs[i].size, maxSegment+1)))); total > maxSegment {
			return nil, outboard.Errorf(outboard.Exhausted, "infer", "the outputs have more than %v, which a call has at most", outboard.Bytes(maxSegment))
		}
	}
	for i := range answer.outputs {
		p := &answer.outputs[i]
		mem := call.memory.mem
		if p.extra > uint64(len(call.extra)) {
			return nil, errFrame
		}
		if p.extra > 0 {
			mem = call.extra[p.extra-1].mem
		}
		data, err := p.within(mem)
		if err != nil {
			return nil, err
		}
		outputs[i] = p.Tensor
		outputs[i].Data = slices.Clone(data) // the worker may change the segment
	}
	for old := c.outputs.Load(); int64(total) > old && !c.outputs.CompareAndSwap(old, int64(total)); old = c.outputs.Load() {
	}
	return outputs, nil
}

// addOutput maps memory that the worker created for the outputs of a call.
func (c *tensorClient) addOutput(m *ipc.Message) error {
	var o outputMessage
	if err := m.Decode(&o); err != nil {
		return err
	}
	f := m.File()
	if f == nil {
		return errFrame
	}
	s, err := openSegment(0, f)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	s.closeFile()
	c.mu.Lock()
	defer c.mu.Unlock()
	call := c.calls[o.Call]
	if call == nil || c.extras >= maxTensors {
		s.unmap()
		return errFrame
	}
	c.extras++
	call.extra = append(call.extra, s)
	return nil
}

// acquire returns memory that both processes have mapped.
func (c *tensorClient) acquire(ctx context.Context, size int) (*segment, error) {
	c.mu.Lock()
	for i := range slices.Backward(c.free) {
		if s := c.free[i]; len(s.mem) >= size {
			c.free = slices.Delete(c.free, i, i+1)
			c.pooled -= len(s.mem)
			c.mu.Unlock()
			return s, nil
		}
	}
	c.last++
	id := c.last
	c.mu.Unlock()
	s, err := newSegment(id, size)
	if err != nil {
		return nil, err
	}
	// The worker maps the memory even if the caller does not wait for that.
	limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), segmentLimit)
	defer cancel()
	m, err := c.worker.conn.Call(limited, typeSegment, segmentMessage{id}, s.file)
	if err != nil {
		s.unmap()
		return nil, err
	}
	m.Close()
	s.closeFile()
	return s, nil
}

// recycle keeps the memory of a call for later calls, up to maxPooled bytes.
func (c *tensorClient) recycle(call *tensorCall) {
	for _, s := range call.extra {
		s.unmap()
	}
	var surplus []*segment
	c.mu.Lock()
	c.extras -= len(call.extra)
	if c.closed != nil {
		surplus = append(surplus, call.memory)
	} else {
		c.free = append(c.free, call.memory)
		c.pooled += len(call.memory.mem)
	}
	for c.closed == nil && c.pooled > maxPooled && len(c.free) > 1 {
		surplus = append(surplus, c.free[0])
		c.pooled -= len(c.free[0].mem)
		c.free = c.free[1:]
	}
	c.mu.Unlock()
	for _, s := range surplus {
		_ = c.worker.conn.Send(typeRelease, segmentMessage{s.id}) // the worker may have ended
		s.unmap()
	}
}

// close fails the calls and unmaps the memory. The process must have ended.
func (c *tensorClient) close(why error) {
	_ = c.channel.ring.Close(shm.Done)
	c.replies.stop()
	c.mu.Lock()
	c.closed = why
	calls, free := c.calls, c.free
	c.calls, c.free = nil, nil
	c.mu.Unlock()
	c.sending.Wait()
	for _, call := range calls {
		if call.hung != nil {
			call.hung.Stop()
		}
		call.memory.unmap()
		for _, s := range call.extra {
			s.unmap()
		}
	}
	for _, s := range free {
		s.unmap()
	}
	c.channel.ring.Unmap()
}
