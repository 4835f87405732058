package worker

import (
	"context"
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard/internal/helper"
	"github.com/outboard-run/outboard/internal/shm"
	"github.com/outboard-run/outboard/internal/wire"
)

// rings returns both ends of a ring.
func rings(t *testing.T) (node, worker *shm.Ring) {
	t.Helper()
	node, err := shm.Create(ringArea)
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.FcntlInt(node.File().Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if worker, err = shm.Open(os.NewFile(uintptr(fd), "ring"), shm.Worker); err != nil {
		t.Fatal(err)
	}
	return node, worker
}

// answerReversed answers the requests of a tensorClient, the last one first while several wait, so
// that calls receive replies to each other.
func answerReversed(c *channel) error {
	var waiting []uint64
	return c.receive(func(d wire.Decoder) error {
		r := new(request)
		if err := r.decode(&d); err != nil {
			return err
		}
		if r.op == opInfer {
			waiting = append(waiting, r.id)
		}
		if c.ring.TryNext() != nil {
			return nil
		}
		for _, id := range slices.Backward(waiting) {
			if err := c.send(&reply{id: id}); err != nil {
				return err
			}
		}
		waiting = nil
		return nil
	})
}

// noProcess stands for the process of a Worker.
type noProcess struct{ helper.Process }

func (noProcess) Kill() {}

// Each concurrent call gets its own reply, whichever call reads it, also while others are canceled.
func TestRepliesReachTheirCalls(t *testing.T) {
	node, peer := rings(t)
	c := newTensorClient(&Worker{process: noProcess{}, done: make(chan struct{})}, node)
	var serving, calling sync.WaitGroup
	serving.Go(func() { _ = answerReversed(&channel{ring: peer}) })
	for n := range 8 {
		calling.Go(func() {
			for i := range 100 {
				memory, err := newSegment(0, 1)
				if err != nil {
					t.Error(err)
					return
				}
				ctx, cancel := context.WithCancel(t.Context())
				if n%2 == 1 && i%10 == 9 {
					time.AfterFunc(time.Microsecond, cancel)
				}
				call := &tensorCall{memory: memory, reply: make(chan *reply, 1)}
				r := &request{op: opInfer}
				answer, err := c.call(ctx, r, call)
				switch {
				case err == nil && answer.id != r.id:
					t.Errorf("call %d has the reply to call %d", r.id, answer.id)
				case err == nil:
					c.recycle(call)
				case ctx.Err() == nil:
					t.Error(err)
				}
				cancel()
			}
		})
	}
	calling.Wait()
	c.close(errSilent)
	serving.Wait()
	peer.Unmap()
}

// The memory of a call is used again, also if the call's context ends as its reply comes, or if the
// process had ended before the call was sent.
func TestMemoryOfEndedCallsIsUsedAgain(t *testing.T) {
	const calls = 64
	for _, end := range []string{"context", "process"} {
		node, peer := rings(t)
		w := &Worker{process: noProcess{}, done: make(chan struct{}), exitReason: errSilent, crash: errSilent}
		c := newTensorClient(w, node)
		ctx, cancel := context.WithCancel(t.Context())
		answers := &channel{ring: peer}
		var serving sync.WaitGroup
		serving.Go(func() {
			_ = answers.receive(func(d wire.Decoder) error {
				r := new(request)
				if err := r.decode(&d); err != nil || r.op != opInfer {
					return err
				}
				return answers.send(&reply{id: r.id})
			})
		})
		if end == "context" {
			cancel()
		} else {
			close(w.done)
		}
		for range calls {
			memory, err := newSegment(0, 1)
			if err != nil {
				t.Fatal(err)
			}
			call := &tensorCall{memory: memory, reply: make(chan *reply, 1)}
			if _, err = c.call(ctx, &request{op: opInfer}, call); err == nil {
				c.recycle(call)
			}
		}
		for limit := time.Now().Add(time.Minute); c.outstanding() && time.Now().Before(limit); {
			time.Sleep(time.Millisecond)
		}
		c.mu.Lock()
		free := len(c.free)
		c.mu.Unlock()
		if free != calls {
			t.Errorf("the end of the %s: the memory of %d of %d calls is free", end, free, calls)
		}
		cancel()
		c.close(errSilent)
		serving.Wait()
		peer.Unmap()
	}
}

// A worker that sends a part of a frame, and no more, delays no caller whose context ends.
func TestPartOfFrameHoldsNoCaller(t *testing.T) {
	node, peer := rings(t)
	c := newTensorClient(&Worker{process: noProcess{}, done: make(chan struct{})}, node)
	space, err := peer.Reserve(8)
	if err != nil {
		t.Fatal(err)
	}
	binary.LittleEndian.PutUint64(space, 64)
	peer.Commit(8)
	memory, err := newSegment(0, 1)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := c.call(ctx, &request{op: opInfer}, &tensorCall{memory: memory, reply: make(chan *reply, 1)})
		ended <- err
	}()
	cancel()
	select {
	case err := <-ended:
		if err == nil {
			t.Error("the call has a reply")
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("the call does not end with its context")
	}
	c.close(errSilent)
	peer.Unmap()
}

// A process that closes its ring is about to end, with a status that is the reason. A frame that can't
// be decoded is a violation of the protocol.
func TestClosedRingIsNoViolation(t *testing.T) {
	for reason, violation := range map[shm.Reason]bool{shm.Done: false, shm.Corrupt: true} {
		node, peer := rings(t)
		w := &Worker{process: noProcess{}, done: make(chan struct{})}
		c := newTensorClient(w, node)
		if err := peer.Close(reason); err != nil {
			t.Fatal(err)
		}
		if _, ok := c.replies.read(maxReceive); ok {
			t.Errorf("%v: a reply was read", reason)
		}
		if given := w.reason.Load(); (given != nil) != violation {
			t.Errorf("%v: the process was killed for %v", reason, given)
		}
		close(w.done)
		c.close(errSilent)
		peer.Unmap()
	}
}
