package worker

import (
	"context"
	"errors"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// textServer executes the requests about text, in the worker.
type textServer struct {
	conn  *ipc.Conn
	model engine.TextModel
	out   *outbox

	mu      sync.Mutex
	running map[uint64]context.CancelFunc
}

func newTextServer(conn *ipc.Conn, m engine.TextModel) *textServer {
	return &textServer{conn: conn, model: m, out: &outbox{conn: conn}, running: map[uint64]context.CancelFunc{}}
}

func (s *textServer) handle(ctx context.Context, m *ipc.Message) (any, error) {
	switch m.Type {
	case typeTokenize:
		var r engine.Text
		if err := m.Decode(&r); err != nil {
			return nil, err
		}
		tokens, err := s.model.Tokenize(ctx, r)
		return tokensReply{tokens}, err
	case typeStats:
		return s.model.Stats(), nil
	case typeRender:
		var c engine.Conversation
		if err := m.Decode(&c); err != nil {
			return nil, err
		}
		text, err := s.model.Render(ctx, c)
		if errors.Is(err, engine.ErrNoTemplate) {
			return textReply{NoTemplate: true}, nil
		}
		return textReply{Text: text}, err
	case typeEmbed:
		var r embedRequest
		if err := m.Decode(&r); err != nil {
			return nil, err
		}
		list, err := s.model.Embed(ctx, r.Tokens)
		return embedReply{encodeFloats(list)}, err
	}
	return nil, outboard.Errorf(outboard.Protocol, "text", "unknown message %.40q", m.Type)
}

// register returns the context of a generation, which a message of typeCancel cancels.
func (s *textServer) register(life context.Context, generation uint64) context.Context {
	ctx, cancel := context.WithCancel(life)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running[generation] = cancel
	return ctx
}

// generate runs a generation and reports its end.
func (s *textServer) generate(ctx context.Context, r *generateRequest) {
	usage, err := s.model.Generate(ctx, r.Request, func(t engine.Token) error { return s.out.add(r.Generation, t) })
	s.mu.Lock()
	s.running[r.Generation]()
	delete(s.running, r.Generation)
	s.mu.Unlock()
	end := generatedMessage{Generation: r.Generation, Usage: usage}
	if err = errors.Join(s.out.flush(), err); err != nil {
		end.Error, end.Kind = shorten(err.Error()), outboard.KindOf(err)
	}
	_ = s.conn.Send(typeGenerated, end) // the node may have ended
}

// cancel cancels a generation.
func (s *textServer) cancel(m *ipc.Message) {
	var c cancelMessage
	if m.Decode(&c) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.running[c.Generation]; cancel != nil {
		cancel()
	}
}

// An outbox collects tokens while a message is being sent, so that the tokens of one step of all
// generations are sent in few messages.
type outbox struct {
	conn *ipc.Conn

	mu      sync.Mutex
	idle    *sync.Cond
	waiting []generatedTokens
	sending bool
	err     error
}

// maxWaiting bounds the generations in one message.
const maxWaiting = 4096

// add queues a token, and sends the queued tokens unless another goroutine is sending.
func (o *outbox) add(generation uint64, t engine.Token) error {
	o.mu.Lock()
	if o.err != nil {
		defer o.mu.Unlock()
		return o.err
	}
	at := -1
	for i := range o.waiting {
		if o.waiting[i].Generation == generation {
			at = i
		}
	}
	switch {
	case at >= 0:
		o.waiting[at].Tokens = append(o.waiting[at].Tokens, t)
	case len(o.waiting) >= maxWaiting:
		defer o.mu.Unlock()
		return outboard.Errorf(outboard.Exhausted, "generate", "the node does not read the tokens")
	default:
		o.waiting = append(o.waiting, generatedTokens{generation, []engine.Token{t}})
	}
	if o.sending {
		o.mu.Unlock()
		return nil
	}
	o.sending = true
	defer o.mu.Unlock()
	// The engine computes the next step in the meantime: its tokens wait for the current message,
	// but not for this goroutine, which leaves tokens that are queued while it sends to another
	// one.
	o.send()
	if len(o.waiting) > 0 && o.err == nil {
		go o.drain()
		return nil
	}
	o.finish()
	return o.err
}

// drain sends until no tokens are queued.
func (o *outbox) drain() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for len(o.waiting) > 0 && o.err == nil {
		o.send()
	}
	o.finish()
}

// send sends the queued tokens. mu must be held, and is not held during the sending.
func (o *outbox) send() {
	batch := o.waiting
	o.waiting = nil
	o.mu.Unlock()
	err := o.conn.Send(typeTokens, tokensMessage{batch})
	o.mu.Lock()
	if o.err = err; err != nil {
		_ = o.conn.Close() // so that the process ends: the tokens are missing in their generations
	}
}

// finish ends the sending. mu must be held.
func (o *outbox) finish() {
	o.sending = false
	o.condition().Broadcast()
}

// flush waits until all tokens have been sent.
func (o *outbox) flush() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for o.sending {
		o.condition().Wait()
	}
	return o.err
}

// condition returns the condition that nothing is being sent. mu must be held.
func (o *outbox) condition() *sync.Cond {
	if o.idle == nil {
		o.idle = sync.NewCond(&o.mu)
	}
	return o.idle
}
