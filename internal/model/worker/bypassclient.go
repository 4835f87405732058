package worker

import (
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// A BypassClient is the end of a Bypass in a tenant's process. It executes one call at a time:
// several at once are for the node, which forms batches of them. Any number of goroutines may use it.
type BypassClient struct {
	bypassMemory
	channel channel
	limit   time.Duration // of a call
	receive func(wire.Decoder) error

	calling sync.Mutex // held by the call in progress
	last    uint64
	answer  bypassReply // the last one
	pending bool        // the reply to the last call, which its caller has abandoned, is still to come

	ending sync.Once
	mu     sync.Mutex
	broken bool // no more calls succeed
}

// OpenBypassClient maps the files of a Bypass, and closes them. limit bounds the time of a call.
func OpenBypassClient(files []*os.File, limit time.Duration) (*BypassClient, error) {
	memory, err := openBypassMemory(files, shm.Client)
	if err != nil {
		return nil, err
	}
	c := &BypassClient{bypassMemory: *memory, channel: channel{ring: memory.ring}, limit: limit}
	c.receive = c.readReply
	return c, nil
}

// Broken reports whether the bypass has ended, or is too small.
func (c *BypassClient) Broken() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.broken
}

func (c *BypassClient) markBroken() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
}

// Close ends the call in progress and unmaps the memory.
func (c *BypassClient) Close() {
	c.ending.Do(func() {
		c.markBroken()
		_ = c.ring.Close(shm.Done)
		c.calling.Lock()
		defer c.calling.Unlock()
		c.unmap()
	})
}

// Infer computes the named outputs. It fails with ErrNoBypass if the call has to go through the
// node.
func (c *BypassClient) Infer(ctx context.Context, inputs []model.Tensor, outputs []string) ([]model.Tensor, error) {
	if !c.calling.TryLock() {
		return nil, ErrNoBypass
	}
	defer c.calling.Unlock()
	if !c.isUsable() {
		return nil, ErrNoBypass
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	limit := c.limit
	if deadline, ok := ctx.Deadline(); ok {
		limit = min(limit, time.Until(deadline))
	}
	r := bypassRequest{timeout: limit, request: request{op: opInfer, outputs: outputs}}
	if !c.copyInputs(&r, inputs) {
		c.markBroken()
		return nil, ErrNoBypass
	}
	c.last++
	r.id = c.last
	until := time.Now().Add(c.limit)
	if c.channel.send(&r) != nil {
		c.markBroken()
		return nil, ErrNoBypass
	}
	if err := c.await(ctx, until); err != nil {
		return nil, err
	}
	return c.outputs()
}

// isUsable reports whether the worker would execute a call at present.
func (c *BypassClient) isUsable() bool {
	if c.Broken() {
		return false
	}
	if _, closed := c.ring.Closed(); closed {
		c.markBroken()
		return false
	}
	return c.isIdle() && c.gate.isOpen()
}

// isIdle reports whether no reply is pending. It receives the reply to an abandoned call.
func (c *BypassClient) isIdle() bool {
	if !c.pending {
		return true
	}
	received, err := c.channel.receiveWithin(0, c.receive)
	if err != nil {
		c.markBroken()
		return false
	}
	c.pending = !received
	return received
}

// copyInputs copies the inputs to the shared memory. It reports false if they do not fit.
func (c *BypassClient) copyInputs(r *bypassRequest, inputs []model.Tensor) bool {
	memory, at := c.tensors.mem, bypassHeader
	for i := range inputs {
		at = align(at)
		data := inputs[i].Data
		if at > len(memory) || len(data) > len(memory)-at {
			return false
		}
		p := placed{Tensor: inputs[i], offset: uint64(at), size: uint64(len(data))}
		p.Data = nil
		at += copy(memory[at:], data)
		r.inputs = append(r.inputs, p)
	}
	r.outputOffset = uint64(align(at))
	return align(at) <= len(memory)
}

// awaitStep is how often a call that takes long checks its context.
const awaitStep = 10 * time.Millisecond

// await waits for the reply to the last call. A call whose context ends is abandoned, and the worker
// cancels it (callWatch).
func (c *BypassClient) await(ctx context.Context, until time.Time) error {
	for {
		received, err := c.channel.receiveWithin(awaitStep, c.receive)
		switch {
		case err != nil:
			c.markBroken()
			return ErrNoBypass
		case received:
			return nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case !time.Now().Before(until):
			err = outboard.Errorf(outboard.Exhausted, "infer", "the model did not answer within %v", c.limit)
		default:
			continue
		}
		wordAt(c.tensors.mem, 0).Store(c.last)
		c.pending = true
		return err
	}
}

// readReply reads a frame of the worker: the reply to the last call.
func (c *BypassClient) readReply(d wire.Decoder) error {
	c.answer = bypassReply{}
	if err := c.answer.decode(&d); err != nil {
		return err
	}
	if c.answer.id != c.last {
		return errFrame
	}
	return nil
}

// outputs returns copies of the outputs of the last call, since the next call overwrites them.
func (c *BypassClient) outputs() ([]model.Tensor, error) {
	switch {
	case c.answer.outcome == bypassTooLarge:
		c.markBroken()
		return nil, ErrNoBypass
	case c.answer.outcome != bypassExecuted:
		return nil, ErrNoBypass
	case c.answer.failure != "":
		return nil, &outboard.Error{Kind: outboard.Kind(c.answer.kind), Err: errors.New(c.answer.failure)}
	}
	list := make([]model.Tensor, len(c.answer.outputs))
	for i := range c.answer.outputs {
		p := &c.answer.outputs[i]
		data, err := p.within(c.tensors.mem)
		if err != nil || p.extra != 0 {
			c.markBroken()
			return nil, errFrame
		}
		list[i] = p.Tensor
		list[i].Data = slices.Clone(data)
	}
	return list, nil
}
