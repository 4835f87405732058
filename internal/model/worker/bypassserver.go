package worker

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// A bypassServer executes, in the worker, the calls of a tenant's process, one at a time, in the
// goroutine that reads them. The process is not trusted: the engine uses copies of the tensors, since
// the process can change the shared memory at any time.
type bypassServer struct {
	bypassMemory
	tensorServer *tensorServer
	info         engine.Info
	limit        time.Duration // of a call
	channel      channel
	watch        callWatch
	reading      sync.WaitGroup
	executing    sync.Mutex // held from the decision to execute a call to its reply
}

// newBypassServer serves the calls of a bypass with the files that the node passed.
func newBypassServer(t *tensorServer, m *ipc.Message, limit time.Duration) (*bypassServer, error) {
	memory, err := openBypassMemory(m.Files(), shm.Worker)
	if err != nil {
		return nil, err
	}
	s := &bypassServer{
		bypassMemory: *memory, tensorServer: t, info: t.model.Info(), limit: limit, channel: channel{ring: memory.ring},
		watch: callWatch{life: t.process.life, abandoned: wordAt(memory.tensors.mem, 0)},
	}
	s.reading.Go(func() {
		_ = s.channel.receive(s.handle) // the ring was closed, or the caller violates the protocol
	})
	return s, nil
}

// close waits for the call in progress and its reply, and unmaps the memory.
func (s *bypassServer) close() {
	s.executing.Lock()
	_ = s.ring.Close(shm.Done)
	s.executing.Unlock()
	s.reading.Wait()
	s.watch.stop()
	s.unmap()
}

// handle executes the call of a frame. A caller reads each reply before it sends the next frame. One
// that does not, violates the protocol: waiting for it would block the end of the bypass.
func (s *bypassServer) handle(d wire.Decoder) error {
	var r bypassRequest
	if err := r.decode(&d); err != nil {
		return err
	}
	if r.op != opInfer {
		return errFrame
	}
	s.executing.Lock()
	defer s.executing.Unlock()
	return s.channel.sendNow(s.execute(&r))
}

func (s *bypassServer) execute(r *bypassRequest) *bypassReply {
	answer := &bypassReply{reply: reply{id: r.id}}
	if !s.gate.isOpen() {
		answer.outcome = bypassClosed
		return answer
	}
	began := time.Now()
	rows, err := s.infer(r, &answer.reply)
	if errors.Is(err, errTooLarge) {
		answer.outcome = bypassTooLarge
		return answer
	}
	counters(s.counts.mem).add(rows, time.Since(began), err)
	if err != nil {
		answer.kind, answer.failure, answer.outputs = uint64(outboard.KindOf(err)), shorten(err.Error()), nil
	}
	return answer
}

// infer computes the outputs of a request, and returns its rows.
func (s *bypassServer) infer(r *bypassRequest, answer *reply) (rows int, err error) {
	inputs, err := s.copyInputs(r.inputs)
	if err != nil {
		return 0, err
	}
	if rows, err = s.info.Check(inputs, r.outputs, false); err != nil {
		return 0, err
	}
	ctx := s.watch.begin(r.id, min(r.timeout, s.limit))
	defer s.watch.end()
	outputs, err := s.tensorServer.compute(ctx, model.Sequence{}, inputs, r.outputs, allocatePrivate)
	if err != nil {
		return 0, err
	}
	answer.outputs, err = s.copyOutputs(outputs, r.outputOffset)
	return rows, err
}

// allocatePrivate implements engine.Allocate.
func allocatePrivate(size int) ([]byte, error) { return make([]byte, size), nil }

// copyInputs copies the inputs to memory that the caller can't change. Together they are not larger
// than the shared memory.
func (s *bypassServer) copyInputs(list []placed) ([]model.Tensor, error) {
	inputs, left := make([]model.Tensor, len(list)), uint64(len(s.tensors.mem))
	for i := range list {
		data, err := list[i].within(s.tensors.mem)
		if err != nil {
			return nil, err
		}
		if list[i].extra != 0 || list[i].size > left {
			return nil, errFrame
		}
		left -= list[i].size
		inputs[i] = list[i].Tensor
		inputs[i].Data = slices.Clone(data)
	}
	return inputs, nil
}

// errTooLarge is the error of outputs that do not fit into the shared memory.
var errTooLarge = errors.New("the outputs do not fit into the shared memory")

// copyOutputs copies the outputs to the shared memory, at an offset that the caller has chosen.
func (s *bypassServer) copyOutputs(outputs []model.Tensor, offset uint64) ([]placed, error) {
	memory := s.tensors.mem
	if offset < bypassHeader || offset > uint64(len(memory)) {
		return nil, errFrame
	}
	list, at := make([]placed, len(outputs)), int(offset)
	for i := range outputs {
		at = align(at)
		data := outputs[i].Data
		if at > len(memory) || len(data) > len(memory)-at {
			return nil, errTooLarge
		}
		list[i] = placed{Tensor: outputs[i], offset: uint64(at), size: uint64(len(data))}
		list[i].Data = nil
		at += copy(memory[at:], data)
	}
	return list, nil
}

// bypassServers are the bypasses of a worker, by their numbers.
type bypassServers struct {
	mu   sync.Mutex
	open map[uint64]*bypassServer // nil once the process ends
}

// add adds a bypass, or closes it if the process ends.
func (b *bypassServers) add(id uint64, s *bypassServer) error {
	b.mu.Lock()
	refused := b.open == nil || b.open[id] != nil
	if !refused {
		b.open[id] = s
	}
	b.mu.Unlock()
	if refused {
		s.close()
		return errFrame
	}
	return nil
}

// remove removes a bypass, nil if there is none with the number.
func (b *bypassServers) remove(id uint64) *bypassServer {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := b.open[id]
	delete(b.open, id)
	return s
}

// close closes all bypasses. The model must be closed.
func (b *bypassServers) close() {
	b.mu.Lock()
	open := b.open
	b.open = nil
	b.mu.Unlock()
	for _, s := range open {
		s.close()
	}
}

// handleBypass begins or ends a bypass. The end waits for the call in progress, which it cancels if
// the node says so.
func (p *process) handleBypass(_ context.Context, m *ipc.Message) (any, error) {
	var b bypassMessage
	if err := m.Decode(&b); err != nil {
		return nil, err
	}
	if m.Type == typeBypassEnd {
		if s := p.bypasses.remove(b.ID); s != nil {
			if b.Cancel {
				s.watch.cancelCall()
			}
			s.close()
		}
		return nil, nil
	}
	if p.tensors == nil {
		return nil, outboard.Errorf(outboard.Protocol, "bypass", "the model takes no tensors")
	}
	s, err := newBypassServer(p.tensors, m, b.Limit)
	if err != nil {
		return nil, err
	}
	return nil, p.bypasses.add(b.ID, s)
}
