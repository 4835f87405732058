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
	s := &textServer{conn: conn, model: m, out: &outbox{conn: conn}, running: map[uint64]context.CancelFunc{}}
	if stepped, ok := m.(engine.SteppedModel); ok {
		s.out.stepped = true
		stepped.AfterSteps(func() { _ = s.out.send() }) // add returns the error for the next token
	}
	return s
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
	if err = errors.Join(s.out.send(), err); err != nil {
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

// An outbox sends tokens to the node. Those of one step of all generations share a message where the
// model tells when a step ends, and those that come while a message is being sent share the next one.
type outbox struct {
	conn *ipc.Conn
	// stepped leaves the sending to the model's steps. It is set before the first generation.
	stepped bool

	sending sync.Mutex // held before mu

	mu      sync.Mutex
	waiting []generatedTokens
	err     error
}

// add queues a token, which send sends.
func (o *outbox) add(generation uint64, t engine.Token) error {
	err := o.queue(generation, t)
	if err == nil && !o.stepped {
		err = o.send()
	}
	return err
}

func (o *outbox) queue(generation uint64, t engine.Token) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range o.waiting {
		if o.waiting[i].Generation == generation {
			o.waiting[i].Tokens = append(o.waiting[i].Tokens, t)
			return o.err
		}
	}
	o.waiting = append(o.waiting, generatedTokens{generation, []engine.Token{t}})
	return o.err
}

// send sends the tokens that are queued, and waits until all that were queued before are sent.
func (o *outbox) send() error {
	o.sending.Lock()
	defer o.sending.Unlock()
	o.mu.Lock()
	batch, err := o.waiting, o.err
	o.waiting = nil
	o.mu.Unlock()
	if err != nil || len(batch) == 0 {
		return err
	}
	if err = o.conn.Send(typeTokens, tokensMessage{batch}); err != nil {
		o.fail(err)
	}
	return err
}

// fail makes the process end: the tokens are missing in their generations.
func (o *outbox) fail(err error) {
	o.mu.Lock()
	o.err = err
	o.mu.Unlock()
	_ = o.conn.Close()
}
