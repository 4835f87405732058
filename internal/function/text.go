package function

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"

	"github.com/outboard-run/outboard"
)

// textModule is the module that functions import to generate text with language models.
const textModule = "outboard_text"

// A TextModel is a model of the pool that generates text.
type TextModel interface {
	Resource
	// Complete starts to answer a request, which is the JSON of OpenAI's chat/completions; its
	// member "model" is ignored. The stream ends with ctx. The request is only read.
	Complete(ctx context.Context, request []byte) (TextStream, error)
}

// A TextStream is an answer that is being generated. One goroutine uses it.
type TextStream interface {
	// Next waits for the next chunk: a chat.completion.chunk of OpenAI's interface, as JSON. The
	// error is io.EOF after the last one.
	Next() ([]byte, error)
	// Close ends the generation. No method is called afterwards.
	Close()
}

// Bounds of text in one call.
const (
	maxTextStreams = 8
	maxTextRequest = 1 << 20 // bytes
)

// textState has the answers that a call reads. A stream's handle is its index, from 1.
type textState struct {
	streams []textStream
}

// A textStream is an answer; stream is nil once it has ended.
type textStream struct {
	stream TextStream
	record int // of the import
}

// closeAll ends all generations of a call.
func (t *textState) closeAll() {
	for i := range t.streams {
		t.streams[i].close()
	}
	t.streams = nil
}

func (t *textStream) close() {
	if t.stream != nil {
		t.stream.Close()
	}
	t.stream = nil
}

// provideText makes the module outboard_text. Its functions return the codes of wasi-nn; an error's
// text goes to the function's standard error and is the result.
func provideText(ctx context.Context, r wazero.Runtime) error {
	b := r.NewHostModuleBuilder(textModule)
	for _, f := range []struct {
		name   string
		params int
		run    func(c *invocation, stack []uint64) error
	}{
		{"start", 4, textStart},
		{"next", 2, textNext},
		{"end", 1, textEnd},
	} {
		params := []api.ValueType{i32, i32, i32, i32}[:f.params]
		export(b, f.name, func(ctx context.Context, _ api.Module, stack []uint64) {
			c := invocationOf(ctx)
			err := f.run(c, stack)
			if stack[0] = nnSuccess; c.reportError(err) {
				stack[0] = nnCode(err)
				_, _ = fmt.Fprintf(&c.slot.stderr, "%s: %s: %v\n", textModule, f.name, err) // it has a limit
			}
		}, params, i32)
	}
	_, err := b.Instantiate(ctx)
	return err
}

// textStart starts to answer a request. The stack has the handle of an imported model, the address
// and size of the request, and the address for the stream's handle.
func textStart(c *invocation, stack []uint64) error {
	out := uint32(stack[3])
	m, h, err := resourceAs[TextModel](c, int32(stack[0]), "model for text")
	if err != nil {
		return nnErrorf(nnInvalidArgument, "%w", err)
	}
	number, err := c.text.free()
	if err != nil {
		return err
	}
	request, err := readTextRequest(c.slot.instance.Memory().Read, uint32(stack[1]), uint32(stack[2]))
	if err != nil {
		return err
	}
	begin, record := time.Now(), h.record
	stream, err := m.Complete(c.context(), request)
	c.countTransfer(c.imports.recordUse(record, begin), len(request), false)
	if err != nil {
		return err
	}
	c.text.streams[number-1] = textStream{stream, record}
	return writeU32(c, out, number)
}

// readTextRequest copies the request at an address with a size in bytes.
func readTextRequest(memory func(at, size uint32) ([]byte, bool), at, size uint32) ([]byte, error) {
	if size > maxTextRequest {
		return nil, nnErrorf(nnTooLarge, "a request of %v: want at most %v", outboard.Bytes(size), outboard.Bytes(maxTextRequest))
	}
	b, ok := memory(at, size)
	switch {
	case !ok:
		return nil, nnErrorf(nnInvalidArgument, "a request: %w", errOutside)
	case !json.Valid(b):
		return nil, nnErrorf(nnInvalidEncoding, "a request is no JSON: want that of OpenAI's chat/completions")
	}
	return bytes.Clone(b), nil
}

// free returns the handle of a stream that is not in use.
func (t *textState) free() (uint32, error) {
	for i := range t.streams {
		if t.streams[i].stream == nil {
			return uint32(i + 1), nil
		}
	}
	if len(t.streams) == maxTextStreams {
		return 0, nnErrorf(nnTooLarge, "a call may read %d answers at a time: end one", maxTextStreams)
	}
	t.streams = append(t.streams, textStream{})
	return uint32(len(t.streams)), nil
}

// find returns the stream of a handle.
func (t *textState) find(number uint64) (*textStream, error) {
	if n := uint32(number); n >= 1 && int(n) <= len(t.streams) && t.streams[n-1].stream != nil {
		return &t.streams[n-1], nil
	}
	return nil, nnErrorf(nnInvalidArgument, "%d is no stream of this call, or has ended", int32(number))
}

// textNext waits for the next chunk and makes it the result. The stack has the stream's handle and
// the address for 1, or 0 after the last chunk, which ends the stream as an error does.
func textNext(c *invocation, stack []uint64) error {
	out := uint32(stack[1])
	s, err := c.text.find(stack[0])
	if err != nil {
		return err
	}
	c.slot.watch.Leave() // the call waits outside of the function
	begin := time.Now()
	chunk, err := s.stream.Next()
	use := c.imports.recordUse(s.record, begin)
	if most := int64(c.slot.limits.Memory); int64(len(chunk)) > most {
		err = nnErrorf(nnTooLarge, "a chunk of %v: the function's limit of memory is %v", outboard.Bytes(len(chunk)), outboard.Bytes(most))
	}
	if err != nil {
		s.close()
		c.result = nil
		if errors.Is(err, io.EOF) {
			return writeU32(c, out, 0)
		}
		return err
	}
	c.result = chunk
	c.countTransfer(use, len(chunk), false)
	return writeU32(c, out, 1)
}

// textEnd ends a generation. Ending it again does nothing.
func textEnd(c *invocation, stack []uint64) error {
	if s, err := c.text.find(stack[0]); err == nil {
		s.close()
	}
	return nil
}
