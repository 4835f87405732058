package worker

import (
	"context"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// tensorServer executes, in the worker, the calls that arrive through the ring.
type tensorServer struct {
	process *process
	model   engine.TensorModel
	channel channel
	reading sync.WaitGroup

	mu       sync.Mutex
	segments map[uint64]*segment
	running  map[uint64]context.CancelFunc
	calls    sync.WaitGroup
}

func newTensorServer(p *process, m engine.TensorModel, ring *shm.Ring) *tensorServer {
	s := &tensorServer{
		process: p, model: m, channel: channel{ring: ring},
		segments: map[uint64]*segment{}, running: map[uint64]context.CancelFunc{},
	}
	s.reading.Go(func() {
		if err := s.channel.receive(s.handle); err != nil && p.life.Err() == nil {
			_ = p.conn.Close() // the node has closed the ring, or violates the protocol
		}
	})
	return s
}

// close waits for the calls and unmaps the memory. The model must be closed.
func (s *tensorServer) close() {
	_ = s.channel.ring.Close(shm.Done)
	s.reading.Wait()
	s.calls.Wait()
	for _, m := range s.segments {
		m.unmap()
	}
	s.channel.ring.Unmap()
}

func (s *tensorServer) add(m *segment) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.segments[m.id] = m
}

// release unmaps a segment that no call uses.
func (s *tensorServer) release(id uint64) {
	s.mu.Lock()
	m := s.segments[id]
	delete(s.segments, id)
	s.mu.Unlock()
	if m != nil {
		m.unmap()
	}
}

// handle starts the call of a frame, or cancels a call.
func (s *tensorServer) handle(d wire.Decoder) error {
	var r request
	if err := r.decode(&d); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch r.op {
	case opCancel:
		if cancel := s.running[r.id]; cancel != nil {
			cancel()
		}
	case opInfer:
		ctx, cancel := context.WithCancel(s.process.life)
		s.running[r.id] = cancel
		memory := s.segments[r.segment]
		s.calls.Go(func() {
			answer := s.infer(ctx, &r, memory)
			cancel()
			s.mu.Lock()
			delete(s.running, r.id)
			s.mu.Unlock()
			if answer.failure != "" && s.process.life.Err() != nil {
				return // the call ends with this process, for whose reason the node knows
			}
			_ = s.channel.send(answer) // the node may have ended
		})
	default:
		return errFrame
	}
	return nil
}

// infer executes a call. The outputs that fit are in the call's segment.
func (s *tensorServer) infer(ctx context.Context, r *request, memory *segment) *reply {
	answer := &reply{id: r.id}
	err := func() error {
		if memory == nil || r.outputOffset > uint64(len(memory.mem)) {
			return errFrame
		}
		inputs := make([]model.Tensor, len(r.inputs))
		for i := range r.inputs {
			data, err := r.inputs[i].within(memory.mem)
			if err != nil {
				return err
			}
			inputs[i] = r.inputs[i].Tensor
			inputs[i].Data = data
		}
		output := outputMemory{server: s, call: r.id, memory: memory, used: int(r.outputOffset)}
		defer output.release()
		outputs, err := s.compute(ctx, r.sequence, inputs, r.outputs, output.allocate)
		if err != nil {
			return err
		}
		answer.outputs, err = output.passOutputs(outputs)
		return err
	}()
	if err != nil {
		answer.kind, answer.failure = uint64(outboard.KindOf(err)), shorten(err.Error())
		answer.outputs = nil
	}
	return answer
}

// maxFailure bounds the text of an error in a frame.
const maxFailure = 16 << 10

func shorten(text string) string {
	if text == "" {
		return "unknown error"
	}
	return text[:min(len(text), maxFailure)]
}

func (s *tensorServer) compute(ctx context.Context, sequence model.Sequence, in []model.Tensor, names []string, allocate engine.Allocate) ([]model.Tensor, error) {
	if m, ok := s.model.(engine.SequenceModel); ok && sequence.Number != 0 {
		return m.InferSequence(ctx, sequence, in, names)
	}
	if m, ok := s.model.(engine.OutputAllocator); ok {
		return m.InferInto(ctx, in, names, allocate)
	}
	return s.model.Infer(ctx, in, names)
}

// An outputMemory is the memory for the outputs of one call.
type outputMemory struct {
	server *tensorServer
	call   uint64
	memory *segment
	used   int // bytes of memory
	blocks []block
	extra  []*segment // segments that the worker created
}

// A block is memory that was allocated for an output.
type block struct {
	data          []byte
	extra, offset uint64
}

// allocate implements engine.Allocate.
func (o *outputMemory) allocate(size int) ([]byte, error) {
	if size == 0 {
		return []byte{}, nil
	}
	at := align(o.used)
	if at <= len(o.memory.mem) && size <= len(o.memory.mem)-at {
		o.used = at + size
		data := o.memory.mem[at : at+size : at+size]
		o.blocks = append(o.blocks, block{data: data, offset: uint64(at)})
		return data, nil
	}
	m, err := newSegment(uint64(len(o.extra)), size)
	if err != nil {
		return nil, err
	}
	o.extra = append(o.extra, m)
	o.blocks = append(o.blocks, block{data: m.mem[:size:size], extra: uint64(len(o.extra))})
	return m.mem[:size:size], nil
}

// passOutputs passes the segments that the worker created to the node, and returns the places of
// the outputs. It copies an output that an engine has put elsewhere.
func (o *outputMemory) passOutputs(outputs []model.Tensor) ([]placed, error) {
	list := make([]placed, len(outputs))
	for i := range outputs {
		p := &list[i]
		p.Tensor = outputs[i]
		p.Data, p.size = nil, uint64(len(outputs[i].Data))
		if p.size == 0 {
			continue
		}
		b := o.find(outputs[i].Data)
		if b == nil {
			data, err := o.allocate(len(outputs[i].Data))
			if err != nil {
				return nil, err
			}
			copy(data, outputs[i].Data)
			b = &o.blocks[len(o.blocks)-1]
		}
		p.extra, p.offset = b.extra, b.offset
	}
	for _, m := range o.extra {
		ctx, cancel := context.WithTimeout(o.server.process.life, segmentLimit)
		answer, err := o.server.process.conn.Call(ctx, typeOutput, outputMessage{o.call}, m.file)
		cancel()
		if err != nil {
			return nil, err
		}
		answer.Close()
	}
	return list, nil
}

// find returns the block that begins with the first byte of data, or nil.
func (o *outputMemory) find(data []byte) *block {
	for i := range o.blocks {
		if &o.blocks[i].data[0] == &data[0] && len(o.blocks[i].data) >= len(data) {
			return &o.blocks[i]
		}
	}
	return nil
}

func (o *outputMemory) release() {
	for _, m := range o.extra {
		m.unmap()
	}
}
