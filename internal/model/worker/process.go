package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/shm"
)

// ProcessOptions configure Run.
type ProcessOptions struct {
	// Engines are the engines of the program.
	Engines []engine.Engine
	// Library sets the path of a library of an engine to a file that the node passed; nil ignores
	// it.
	Library func(engine, name, path string)
	Log     *slog.Logger

	files string // folder of the model's files, "" for the path that the node sends
}

// process is the worker's state.
type process struct {
	opts ProcessOptions
	conn *ipc.Conn
	life context.Context //nolint:containedctx // of all calls

	mu          sync.Mutex
	ended       bool          // the node has closed the socket
	engineModel engine.Model  // nil before typeLoad
	tensors     *tensorServer // nil before typeLoad and for models without tensors
	texts       *textServer
	bypasses    bypassServers
	libraries   []*os.File // passed by the node, open as long as the process lives
	calls       sync.WaitGroup
}

// Run serves one model for the node at the other end of socket, until the node closes it.
func Run(ctx context.Context, socket *os.File, opts ProcessOptions) error {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	conn, err := ipc.FromFile(socket, processOptions())
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &process{opts: opts, conn: conn, life: ctx, bypasses: bypassServers{open: map[uint64]*bypassServer{}}}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	conn.Serve(p.handle)
	cancel()
	return p.close()
}

// processOptions returns the options of the process's end of the socket. A node that was stopped (a
// paused machine, a debugger) reads on where it was, so messages to it wait: a lost one would leave
// its call without an end.
func processOptions() ipc.Options { return ipc.Options{MaxBody: maxMessage, WriteTimeout: -1} }

// handle starts the operation that a message requests; it does not block.
func (p *process) handle(m *ipc.Message) {
	switch m.Type {
	case typeLibrary:
		p.addLibrary(m)
	case typeLoad:
		p.spawn(m, p.load)
	case typePing:
		_ = p.conn.Reply(m, nil, nil)
	case typeSegment, typeRelease:
		p.spawn(m, p.handleSegment)
	case typeBypass, typeBypassEnd:
		p.spawn(m, p.handleBypass)
	case typeTokenize, typeRender, typeEmbed, typeStats:
		p.spawn(m, p.handleText)
	case typeGenerate:
		p.startGeneration(m)
	case typeCancel:
		if p.texts != nil {
			p.texts.cancel(m)
		}
	default:
		_ = p.conn.Reply(m, nil, outboard.Errorf(outboard.Protocol, "model worker", "unknown message %.40q", m.Type))
		m.Close()
	}
}

// spawn runs a handler, whose result becomes the reply.
func (p *process) spawn(m *ipc.Message, handler func(ctx context.Context, m *ipc.Message) (any, error)) {
	p.calls.Go(func() {
		defer m.Close()
		body, err := handler(p.life, m)
		_ = p.conn.Reply(m, body, err) // the node may have ended
	})
}

// close unloads the model. The model may be being loaded.
func (p *process) close() error {
	p.mu.Lock()
	p.ended = true
	loaded := p.engineModel
	p.mu.Unlock()
	var err error
	if loaded != nil {
		err = loaded.Close()
	}
	p.calls.Wait()
	p.bypasses.close()
	if p.tensors != nil {
		p.tensors.close()
	}
	return err
}

// addLibrary makes an engine use a library that the node passed. Without it the engine unpacks its
// own.
func (p *process) addLibrary(m *ipc.Message) {
	defer m.Close()
	var r libraryMessage
	file := m.File() // stays open: the engine loads it by its descriptor
	if file == nil || p.opts.Library == nil || m.Decode(&r) != nil {
		return
	}
	p.libraries = append(p.libraries, file)
	p.opts.Library(r.Engine, r.Name, fmt.Sprintf("/proc/self/fd/%d", file.Fd()))
}

// load loads the model. The node requests it once.
func (p *process) load(ctx context.Context, m *ipc.Message) (any, error) {
	var r loadRequest
	if err := m.Decode(&r); err != nil {
		return nil, err
	}
	ring := m.File()
	if ring == nil {
		return nil, outboard.Errorf(outboard.Protocol, "load", "the message has no ring")
	}
	at := slices.IndexFunc(p.opts.Engines, func(e engine.Engine) bool { return e.Name() == r.Engine })
	if at < 0 {
		return nil, outboard.Errorf(outboard.Invalid, "load", "this program has no engine %q", r.Engine)
	}
	e := p.opts.Engines[at]
	if p.opts.files != "" {
		r.Source.Path, r.Source.Folder = filepath.Join(p.opts.files, filepath.Base(r.Source.Path)), p.opts.files
	}
	loaded, err := e.Load(ctx, r.Source, r.Options)
	if err != nil {
		return nil, errors.Join(err, ring.Close())
	}
	if err := p.setModel(loaded); err != nil {
		return nil, errors.Join(err, loaded.Close(), ring.Close())
	}
	answer := loadReply{Info: loaded.Info(), Version: e.Version()}
	if text, ok := loaded.(engine.TextModel); ok {
		p.texts, answer.Text = newTextServer(p.conn, text), true
	}
	if tensors, ok := loaded.(engine.TensorModel); ok {
		opened, err := shm.Open(ring, shm.Worker)
		if err != nil {
			return nil, err
		}
		p.tensors, answer.Tensors = newTensorServer(p, tensors, opened), true
	}
	return answer, nil
}

// setModel sets the model that close unloads. It fails if close has begun, or a model is loaded.
func (p *process) setModel(loaded engine.Model) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ended || p.engineModel != nil {
		return outboard.Errorf(outboard.Protocol, "load", "the node has closed the connection, or a model is loaded already")
	}
	p.engineModel = loaded
	return nil
}

func (p *process) handleSegment(_ context.Context, m *ipc.Message) (any, error) {
	var s segmentMessage
	if err := m.Decode(&s); err != nil {
		return nil, err
	}
	if p.tensors == nil {
		return nil, outboard.Errorf(outboard.Protocol, "segment", "the model takes no tensors")
	}
	if m.Type == typeRelease {
		p.tensors.release(s.ID)
		return nil, nil
	}
	f := m.File()
	if f == nil {
		return nil, outboard.Errorf(outboard.Protocol, "segment", "no file came along")
	}
	opened, err := openSegment(s.ID, f)
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	opened.closeFile()
	p.tensors.add(opened)
	return nil, nil
}

func (p *process) handleText(ctx context.Context, m *ipc.Message) (any, error) {
	if p.texts == nil {
		return nil, outboard.Errorf(outboard.Invalid, m.Type, "the model is none for text")
	}
	return p.texts.handle(ctx, m)
}

// startGeneration registers a generation before the next message, which may cancel it, is read.
func (p *process) startGeneration(m *ipc.Message) {
	defer m.Close()
	var r generateRequest
	if m.Decode(&r) != nil {
		return // the node violates the protocol
	}
	if p.texts == nil {
		_ = p.conn.Send(typeGenerated, generatedMessage{
			Generation: r.Generation, Error: "the model is none for text", Kind: outboard.Invalid,
		}) // the node may have ended
		return
	}
	ctx := p.texts.register(p.life, r.Generation)
	p.calls.Go(func() { p.texts.generate(ctx, &r) })
}

func encodeFloats(list []float32) []byte {
	b := make([]byte, 0, 4*len(list))
	for _, v := range list {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(v))
	}
	return b
}

func decodeFloats(b []byte) []float32 {
	list := make([]float32, len(b)/4)
	for i := range list {
		list[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return list
}
