package llama

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
)

// Engine is the engine llama.cpp. Its zero value is ready; the library is loaded with the first
// model.
type Engine struct {
	// Libraries are paths of embedded libraries that are unpacked already, by their names in the
	// archive (see Embedded). The engine unpacks the missing libraries.
	Libraries map[string]string
}

var _ engine.Engine = Engine{}

// Name returns "llama".
func (Engine) Name() string { return "llama" }

// Version returns the version of the embedded library, "" if this program has none.
func (e Engine) Version() string {
	l, err := openLibrary("", e.Libraries)
	if err != nil {
		return ""
	}
	return l.version
}

// Defaults of options that are 0.
const (
	defaultSequences = 8
	maxSequences     = 64
	// cachedSequences is the number of sequences that are kept beside the running ones. The library
	// holds logits for each of them, though they have none.
	cachedSequences = 56
	// microBatch is the most tokens that are decoded at once.
	microBatch = 256
	// defaultState bounds attention state, in bytes, where options give no memory.
	defaultState = 1 << 30
	minContext   = 32
)

// Load reads a GGUF file. Errors in its header are found before the library reads it.
func (e Engine) Load(ctx context.Context, source engine.Source, o engine.Options) (engine.Model, error) {
	header, err := gguf.Open(source.Path, gguf.Limits{})
	if err != nil {
		return nil, outboard.Errorf(outboard.Invalid, "load model", "%w", err)
	}
	if err := checkHeader(header); err != nil {
		return nil, err
	}
	lib, err := openLibrary(o.Library, e.Libraries)
	if err != nil {
		return nil, err
	}
	m := &textModel{lib: lib, header: header}
	if err := m.load(ctx, source.Path, o); err != nil {
		return nil, err
	}
	m.alphabet, err = m.newAlphabet()
	if err == nil {
		err = m.open(o)
	}
	if err != nil {
		lib.call(fnModelFree, m.model)
		return nil, err
	}
	m.pieces = make([]string, m.info.Vocabulary)
	if m.context != 0 {
		m.scheduler = newScheduler(m)
	}
	return m, nil
}

// checkHeader refuses files at which llama.cpp would abort the process.
func checkHeader(h *gguf.File) error {
	const maxLayers, maxContext = 512, 1 << 24
	if h.Architecture() == "" {
		return outboard.Errorf(outboard.Invalid, "load model", "metadata general.architecture is missing")
	}
	if h.Text("tokenizer.ggml.model") == "" {
		return outboard.Errorf(outboard.Invalid, "load model", "metadata tokenizer.ggml.model is missing: the file holds no text model")
	}
	for key, most := range map[string]uint64{"block_count": maxLayers, "context_length": maxContext, "embedding_length": maxContext} {
		if n, present := h.Of(key); present && (n < 1 || n > most) {
			return outboard.Errorf(outboard.Invalid, "load model", "metadata %s.%s is %d: it must be from 1 to %d", h.Architecture(), key, n, most)
		}
	}
	return nil
}

// loads are the loads in progress, by the number that is their callback's data.
//
//nolint:gochecknoglobals // C can call a function with a number, not a closure
var loads struct {
	sync.Mutex
	last     uintptr
	contexts map[uintptr]context.Context
	callback uintptr
}

// watchLoad returns the address of a progress callback and its data that end a load with ctx.
func watchLoad(ctx context.Context) (callback, data uintptr, stop func()) {
	loads.Lock()
	defer loads.Unlock()
	if loads.callback == 0 {
		loads.contexts = map[uintptr]context.Context{}
		loads.callback = purego.NewCallback(func(_ float32, data uintptr) uintptr {
			loads.Lock()
			defer loads.Unlock()
			if ctx := loads.contexts[data]; ctx != nil && ctx.Err() != nil {
				return 0
			}
			return 1
		})
	}
	loads.last++
	n := loads.last
	loads.contexts[n] = ctx //nolint:fatcontext // a table of contexts, none derived from another
	return loads.callback, n, func() {
		loads.Lock()
		defer loads.Unlock()
		delete(loads.contexts, n)
	}
}

func (m *textModel) load(ctx context.Context, path string, o engine.Options) error {
	l := m.lib.layout
	p := append(params(nil), m.lib.model...)
	p.setInt(l.gpuLayers, 0)
	if o.Device != "" {
		p.setInt(l.gpuLayers, -1)
	}
	callback, data, stop := watchLoad(ctx)
	defer stop()
	p.setPointer(l.progress, callback)
	p.setPointer(l.progressData, data)
	name := newCString(path)
	defer name.free()
	messages.drain()
	m.model = m.lib.callStruct(fnModelLoad, p, name.address())
	if err := ctx.Err(); err != nil {
		if m.model != 0 {
			m.lib.call(fnModelFree, m.model)
		}
		return err
	}
	if m.model == 0 {
		return outboard.Errorf(outboard.Invalid, "load model", "llama.cpp %s cannot load it: %s", m.lib.version, lastMessage("it gives no reason"))
	}
	m.vocabulary = m.lib.call(fnModelVocab, m.model)
	return nil
}

// lastMessage returns the text that the library has logged since messages.drain, or otherwise.
func lastMessage(otherwise string) string {
	text := strings.TrimSpace(strings.Join(messages.drain(), ""))
	if text == "" {
		return otherwise
	}
	const most = 500
	return strings.ReplaceAll(text[:min(len(text), most)], "\n", "; ")
}

// open creates the context: the cells of attention state, and the memory of micro-batches.
func (m *textModel) open(o engine.Options) error {
	sequences := min(max(o.Sequences, 0), maxSequences)
	if sequences == 0 {
		sequences = defaultSequences
	}
	cells, err := m.size(o, sequences)
	if err != nil {
		return err
	}
	m.sequences, m.cached = sequences, cachedSequences
	if m.lib.bool(fnModelRecurrent, m.model) || m.lib.bool(fnModelHybrid, m.model) {
		m.cached = 0 // a recurrent state is that of a sequence's end, and cannot be shared
	}
	m.chunk = min(microBatch, cells)
	l := m.lib.layout
	p := append(params(nil), m.lib.context...)
	p.setInt(l.cells, cells)
	p.setInt(l.batch, m.chunk)
	p.setInt(l.microBatch, m.chunk)
	p.setInt(l.sequences, sequences+m.cached)
	p.setInt(l.outputs, sequences+m.cached)
	p.setBool(l.unified, true)
	m.threads = o.Threads
	if m.threads <= 0 {
		m.threads = runtime.NumCPU()
	}
	p.setInt(l.threads, m.threads)
	p.setInt(l.batchThreads, m.threads)
	if !m.lib.bool(fnModelHasDecoder, m.model) {
		return nil // the model makes embeddings only
	}
	messages.drain()
	m.context = m.lib.callStruct(fnInit, p, m.model)
	if m.context == 0 {
		return outboard.Errorf(outboard.Exhausted, "load model", "llama.cpp has no context of %d tokens for it: %s", cells, lastMessage("it gives no reason"))
	}
	m.memory = m.lib.call(fnMemory, m.context)
	if m.memory == 0 {
		m.lib.call(fnFree, m.context)
		m.context = 0
		return nil
	}
	m.cells = int(int32(m.lib.call(fnContextCells, m.context)))
	if m.cached > 0 {
		m.parked = m.parkedMemory(o)
		m.info.Memory += m.parked
	}
	m.pool = m.lib.newThreadPool(m.threads)
	m.pool.attach(m.context)
	m.abort = m.lib.newAbortFlag(m.context)
	return nil
}

// parkedMemory returns how many bytes of states are kept outside the cells: as many as the cells
// hold, and no more than the model's limit leaves.
func (m *textModel) parkedMemory(o engine.Options) int64 {
	most := min(defaultParked, int64(m.cells)*m.header.StateBytes())
	if o.Memory > 0 {
		most = min(most, max(0, o.Memory-m.info.Memory))
	}
	return most
}

// size returns the number of cells for the options, and describes the model.
func (m *textModel) size(o engine.Options, sequences int) (int, error) {
	own := int(int32(m.lib.call(fnModelContext, m.model)))
	weights := int64(m.lib.call(fnModelSize, m.model))
	length := own
	if o.Context > 0 {
		length = min(o.Context, own)
	}
	state := max(m.header.StateBytes(), 1)
	budget := int64(defaultState)
	if o.Memory > 0 {
		budget = o.Memory - weights
	}
	cells := int(min(int64(length)*int64(sequences), budget/state))
	if cells < min(minContext, length) {
		return 0, outboard.Errorf(outboard.Exhausted, "load model",
			"its weights take %d bytes and each token of state %d: the limit of %d bytes leaves %d tokens", weights, state, o.Memory, max(cells, 0))
	}
	length = min(length, cells)
	m.info = engine.Info{
		Platform: "gguf", Memory: weights + int64(cells)*m.header.StateBytes(), Context: length,
		Sequences:    sequences,
		Vocabulary:   int(int32(m.lib.call(fnVocabTokens, m.vocabulary))),
		Embedding:    int(int32(m.lib.call(fnModelWidth, m.model))),
		ChatTemplate: m.header.Text("tokenizer.chat_template"),
	}
	return cells, nil
}

// bool calls a function that returns a C bool, of which only the low byte is defined.
func (l *library) bool(function int, args ...uintptr) bool {
	return byte(l.call(function, args...)) != 0
}

var errClosed = errors.New("the model is being unloaded")

// Close ends all generations and frees the model.
func (m *textModel) Close() error {
	m.closing.Do(func() {
		if m.scheduler != nil {
			m.scheduler.close()
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		m.closed = true
		for _, c := range []uintptr{m.context, m.embedder} {
			if c != 0 {
				m.lib.call(fnFree, c)
			}
		}
		m.pool.free()
		m.abort.free()
		m.lib.call(fnModelFree, m.model)
	})
	return nil
}

func checkTokens(tokens []int32, vocabulary int) error {
	for i, token := range tokens {
		if token < 0 || int(token) >= vocabulary {
			return outboard.Errorf(outboard.Invalid, "prompt", "token %d is %d, and the vocabulary has %d", i, token, vocabulary)
		}
	}
	if len(tokens) == 0 {
		return outboard.Errorf(outboard.Invalid, "prompt", "it is empty")
	}
	return nil
}
