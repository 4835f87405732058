package worker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// textClient is the node's end of a textServer.
type textClient struct {
	conn *ipc.Conn

	mu      sync.Mutex
	last    uint64
	streams map[uint64]*tokenStream
	waiting atomic.Int64 // bytes of the tokens of all streams that were not emitted yet
	// requests counts the requests in progress that are no generations.
	requests atomic.Int64
}

func (c *textClient) init(conn *ipc.Conn) { c.conn, c.streams = conn, map[uint64]*tokenStream{} }

// A tokenStream holds the tokens of one generation that were not emitted yet.
type tokenStream struct {
	total *atomic.Int64 // textClient.waiting

	mu      sync.Mutex
	waiting []engine.Token
	bytes   int64         // of waiting, about
	arrived chan struct{} // has a value when waiting is not empty
	full    chan struct{} // closed when more tokens came than may wait

	ended chan struct{} // closed after usage and err were set
	usage engine.Usage
	err   error

	begun   bool // tokens have come; textClient.mu must be held
	suspect bool // the generation may have ended the process; set before Worker.done is closed
}

// markSuspects marks the generations that may have ended the process: those whose prompts were being
// computed, or all of them if there are none. A generation whose prompt ends the process then does
// not take those with it that the process had executed well.
func (c *textClient) markSuspects() {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := c.requests.Load() == 0
	for _, s := range c.streams {
		all = all && s.begun
	}
	for _, s := range c.streams {
		s.suspect = all || !s.begun
	}
}

// Bounds of the tokens that wait until a client reads them, in bytes: of one generation, and of all of
// a model's. A process that sends more tokens than it was asked for reaches them, too.
const (
	maxStreamBytes  = 16 << 20
	maxWaitingBytes = 256 << 20
)

// errUnread ends a generation whose tokens are not read.
var errUnread = outboard.Errorf(outboard.Exhausted, "generate", "the client reads the text more slowly than the model generates it")

// add queues tokens, unless too many wait: the generation is cancelled then.
func (s *tokenStream) add(tokens []engine.Token) {
	size := int64(0)
	for i := range tokens {
		size += tokens[i].Size()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if isClosed(s.full) {
		return
	}
	if s.bytes+size > maxStreamBytes || s.total.Load()+size > maxWaitingBytes {
		close(s.full)
		s.clear()
		return
	}
	s.waiting = append(s.waiting, tokens...)
	s.bytes += size
	s.total.Add(size)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
}

// clear drops the tokens. mu must be held.
func (s *tokenStream) clear() {
	s.total.Add(-s.bytes)
	s.waiting, s.bytes = nil, 0
}

func (s *tokenStream) drain() []engine.Token {
	s.mu.Lock()
	defer s.mu.Unlock()
	tokens := s.waiting
	s.clear()
	return tokens
}

// deliver adds the tokens of a message to the streams of their generations.
func (c *textClient) deliver(m *ipc.Message) {
	var t tokensMessage
	if m.Decode(&t) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range t.Batch {
		if s := c.streams[g.Generation]; s != nil {
			s.begun = true
			s.add(g.Tokens)
		}
	}
}

// end ends the stream of a generation with the result that the worker sent.
func (c *textClient) end(m *ipc.Message) {
	var e generatedMessage
	if m.Decode(&e) != nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.streams[e.Generation]
	if s == nil || s.isEnded() {
		return
	}
	switch wrong := e.Usage.Validate(); {
	case wrong != nil:
		s.err = wrong
	case e.Error != "":
		s.usage, s.err = e.Usage, &outboard.Error{Kind: e.Kind, Err: errors.New(e.Error)}
	default:
		s.usage = e.Usage
	}
	close(s.ended)
}

func (s *tokenStream) isEnded() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// request sends a request about text and decodes its reply into v.
func (w *Worker) request(ctx context.Context, kind string, body, v any) error {
	if isClosed(w.done) {
		return w.exitReason
	}
	if kind != typeStats {
		w.texts.requests.Add(1)
		defer w.texts.requests.Add(-1)
	}
	m, err := w.conn.Call(ctx, kind, body)
	if err != nil {
		return w.explainCall(err)
	}
	defer m.Close()
	return m.Decode(v)
}

// tokenizeLimit bounds requests to tokenize, also for a client that waits for ever.
const tokenizeLimit = 30 * time.Second

// Tokenize implements engine.TextModel.
func (w *Worker) Tokenize(ctx context.Context, t engine.Text) ([]int32, error) {
	limited, cancel := context.WithTimeout(ctx, tokenizeLimit)
	defer cancel()
	var r tokensReply
	err := w.request(limited, typeTokenize, t, &r)
	return r.Tokens, explainLimit(ctx, limited, err)
}

// explainLimit returns the error of a request to tokenize: that of its limit unless its client's own
// context has ended.
func explainLimit(client, limited context.Context, err error) error {
	if err == nil || limited.Err() == nil || client.Err() != nil {
		return err
	}
	return outboard.Errorf(outboard.Exhausted, "prompt", "it was not split into tokens within %v: shorten it, or send it again later", tokenizeLimit)
}

// statsLimit bounds a request for statistics: a slow worker has none.
const statsLimit = time.Second

// Stats implements engine.TextModel.
func (w *Worker) Stats() engine.TextStats {
	ctx, cancel := context.WithTimeout(context.Background(), statsLimit)
	defer cancel()
	var s engine.TextStats
	if w.request(ctx, typeStats, struct{}{}, &s) != nil || s.Validate() != nil {
		return engine.TextStats{} // a worker that has ended has none
	}
	return s
}

// Render implements engine.TextModel.
func (w *Worker) Render(ctx context.Context, c engine.Conversation) (string, error) {
	var r textReply
	err := w.request(ctx, typeRender, c, &r)
	if err == nil && r.NoTemplate {
		err = engine.ErrNoTemplate
	}
	return r.Text, err
}

// Embed implements engine.TextModel.
func (w *Worker) Embed(ctx context.Context, tokens []int32) ([]float32, error) {
	var r embedReply
	err := w.request(ctx, typeEmbed, embedRequest{tokens}, &r)
	return decodeFloats(r.Embedding), err
}

// Generate implements engine.TextModel.
func (w *Worker) Generate(ctx context.Context, g engine.Generation, emit func(engine.Token) error) (engine.Usage, error) {
	if err := g.Check(); err != nil {
		return engine.Usage{}, err
	}
	id, stream, err := w.texts.open()
	if err != nil {
		return engine.Usage{}, err
	}
	if err := w.conn.Send(typeGenerate, generateRequest{id, g}); err != nil {
		w.texts.close(id)
		return engine.Usage{}, w.explain(err)
	}
	emit = engine.NewStreamCheck(&g, w.loaded.Info.Context).Emit(emit)
	for {
		select {
		case <-stream.arrived:
			if err := emitAll(stream.drain(), emit); err != nil {
				return engine.Usage{}, w.cancelGeneration(id, stream, err)
			}
		case <-stream.full:
			return engine.Usage{}, w.cancelGeneration(id, stream, errUnread)
		case <-stream.ended: // closed after the last tokens were added
			tokens := stream.drain()
			w.texts.close(id)
			if isClosed(stream.full) {
				return stream.usage, errUnread
			}
			if err := emitAll(tokens, emit); err != nil {
				return stream.usage, err
			}
			return stream.usage, stream.err
		case <-w.done:
			w.texts.close(id)
			if stream.suspect {
				return engine.Usage{}, w.crash
			}
			return engine.Usage{}, w.exitReason
		case <-ctx.Done():
			return engine.Usage{}, w.cancelGeneration(id, stream, context.Cause(ctx))
		}
	}
}

// cancelGeneration cancels a generation and returns err. A worker that continues it is killed.
func (w *Worker) cancelGeneration(id uint64, s *tokenStream, err error) error {
	_ = w.conn.Send(typeCancel, cancelMessage{id}) // the worker may have ended
	hung := time.AfterFunc(cancelGrace, func() { w.Kill(errHung) })
	go func() {
		select {
		case <-s.ended:
		case <-w.done:
		}
		hung.Stop()
		w.texts.close(id)
	}()
	return err
}

func emitAll(tokens []engine.Token, emit func(engine.Token) error) error {
	for i := range tokens {
		if err := emit(tokens[i]); err != nil {
			return err
		}
	}
	return nil
}

// maxStreams bounds the concurrent generations of one model.
const maxStreams = 4096

func (c *textClient) open() (uint64, *tokenStream, error) {
	s := &tokenStream{total: &c.waiting, arrived: make(chan struct{}, 1), full: make(chan struct{}), ended: make(chan struct{})}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.streams) >= maxStreams {
		return 0, nil, outboard.Errorf(outboard.Exhausted, "generate", "%d generations are under way", maxStreams)
	}
	c.last++
	c.streams[c.last] = s
	return c.last, s, nil
}

func (c *textClient) close(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.streams[id]; s != nil {
		s.mu.Lock()
		s.clear() // its generation may have ended early
		s.mu.Unlock()
	}
	delete(c.streams, id)
}
