package llama

import (
	"fmt"
	"runtime"
	"sync"
	"unsafe"

	"github.com/ebitengine/purego"

	"github.com/outboard-run/outboard"
)

// Functions of llama.h that this package calls.
const (
	fnVersion = iota
	fnBackendInit
	fnLogSet
	fnModelDefaultParams
	fnContextDefaultParams
	fnModelLoad
	fnModelFree
	fnInit
	fnFree
	fnModelVocab
	fnModelContext
	fnModelWidth
	fnModelSize
	fnModelRecurrent
	fnModelHybrid
	fnModelHasEncoder
	fnModelHasDecoder
	fnContextCells
	fnMemory
	fnMemoryClear
	fnMemoryRemove
	fnMemoryCopy
	fnStateSize
	fnStateGet
	fnStateSet
	fnDecode
	fnLogits
	fnEmbeddingSequence
	fnVocabType
	fnVocabTokens
	fnVocabIsEnd
	fnTokenText
	fnTokenAttributes
	fnVocabAddBOS
	fnVocabBOS
	fnVocabPrefix
	fnVocabSuffix
	fnVocabMiddle
	fnTokenize
	fnPiece
	fnGrammarInit
	fnSamplerApply
	fnSamplerAccept
	fnSamplerFree
	fnAttachThreads
	fnSetAbort
	fnThreadParams // this function and all that follow are optional (see newThreadPool)
	fnDeviceByType
	fnDeviceRegistry
	fnRegistryFunction
	functionCount
)

var functionNames = [functionCount]string{
	"llama_version", "llama_backend_init", "llama_log_set", "llama_model_default_params", "llama_context_default_params",
	"llama_model_load_from_file", "llama_model_free", "llama_init_from_model", "llama_free",
	"llama_model_get_vocab", "llama_model_n_ctx_train", "llama_model_n_embd_out", "llama_model_size",
	"llama_model_is_recurrent", "llama_model_is_hybrid", "llama_model_has_encoder", "llama_model_has_decoder",
	"llama_n_ctx", "llama_get_memory", "llama_memory_clear", "llama_memory_seq_rm", "llama_memory_seq_cp",
	"llama_state_seq_get_size", "llama_state_seq_get_data", "llama_state_seq_set_data",
	"llama_decode", "llama_get_logits_ith", "llama_get_embeddings_seq",
	"llama_vocab_type", "llama_vocab_n_tokens", "llama_vocab_is_eog", "llama_vocab_get_text", "llama_vocab_get_attr",
	"llama_vocab_get_add_bos", "llama_vocab_bos", "llama_vocab_fim_pre", "llama_vocab_fim_suf", "llama_vocab_fim_mid",
	"llama_tokenize", "llama_token_to_piece",
	"llama_sampler_init_grammar", "llama_sampler_apply", "llama_sampler_accept", "llama_sampler_free",
	"llama_attach_threadpool", "llama_set_abort_callback", "ggml_threadpool_params_init",
	"ggml_backend_dev_by_type", "ggml_backend_dev_backend_reg", "ggml_backend_reg_get_proc_address",
}

// A library is llama.cpp, loaded into this process and never unloaded.
type library struct {
	version   string
	functions [functionCount]uintptr
	strlen    uintptr // of the C library (see abortFlag)
	layout    layout
	model     params
	context   params
}

//nolint:gochecknoglobals // libraries belong to the process
var (
	librariesMu sync.Mutex
	libraries   = map[string]*library{} // by path, "" for the embedded library
)

// openLibrary returns the library at path, "" for the embedded library, loaded once per process.
// passed has the paths of embedded libraries that are unpacked already.
func openLibrary(path string, passed map[string]string) (*library, error) {
	librariesMu.Lock()
	defer librariesMu.Unlock()
	if l := libraries[path]; l != nil {
		return l, nil
	}
	l, err := loadLibrary(path, passed)
	switch {
	case err == nil:
		libraries[path] = l
	case path != "": // another node may have the library
		err = outboard.Errorf(outboard.NoDevice, "load the library", "%w", err)
	}
	return l, err
}

func loadLibrary(path string, passed map[string]string) (*library, error) {
	if runtime.GOARCH != "amd64" && runtime.GOARCH != "arm64" {
		return nil, fmt.Errorf("llama.cpp: structs are not passed by value on %s yet", runtime.GOARCH)
	}
	var handle uintptr
	var err error
	if path == "" {
		if err := librarySupported(); err != nil {
			return nil, err
		}
		handle, err = loadEmbedded(passed)
	} else {
		handle, err = loadFile(path)
	}
	if err != nil {
		return nil, err
	}
	return bind(handle)
}

func bind(handle uintptr) (*library, error) {
	l := &library{}
	for i, name := range &functionNames {
		address, err := purego.Dlsym(handle, name)
		if err != nil && i == fnVersion {
			return nil, fmt.Errorf("llama.cpp: the library does not tell its version (llama_version): version 0.5.0 is known")
		}
		if err != nil && i < fnThreadParams {
			return nil, fmt.Errorf("llama.cpp: the library has no %s: version 0.5.0 is known", name)
		}
		l.functions[i] = address
	}
	var err error
	if l.strlen, err = purego.Dlsym(purego.RTLD_DEFAULT, "strlen"); err != nil {
		return nil, fmt.Errorf("llama.cpp: %w", err)
	}
	l.version = goString(l.call(fnVersion))
	returned := func(function int) func([]byte) {
		return func(to []byte) {
			memory := pin(to)
			l.call(function, memory.address())
			memory.free()
		}
	}
	l.model, l.context = defaults(returned(fnModelDefaultParams)), defaults(returned(fnContextDefaultParams))
	if l.layout, err = checkLayout(l.version, l.model, l.context); err != nil {
		return nil, err
	}
	l.call(fnLogSet, purego.NewCallback(collectLog), 0)
	l.call(fnBackendInit)
	return l, nil
}

// call calls a function with integers and pointers.
func (l *library) call(function int, args ...uintptr) uintptr {
	r, _, _ := purego.SyscallN(l.functions[function], args...)
	return r
}

// callStruct calls a function whose last parameter, after args, is a struct by value. On amd64 a
// struct of more than 16 bytes is copied onto the stack (System V ABI 3.2.3, class MEMORY), behind
// the six registers of integers; on arm64 it is passed by its address (AAPCS64, B.4).
func (l *library) callStruct(function int, value params, args ...uintptr) uintptr {
	if runtime.GOARCH == "arm64" {
		memory := pin(value)
		defer memory.free()
		return l.call(function, append(args, memory.address())...)
	}
	const registers = 6
	words := make([]uintptr, registers, registers+len(value)/8)
	copy(words, args)
	return l.call(function, append(words, value.words()...)...)
}

// pinned is a slice whose memory does not move and stays reachable until it is freed.
type pinned[T any] struct {
	values []T
	pinner runtime.Pinner
}

func pin[T any](values []T) *pinned[T] {
	p := &pinned[T]{values: values}
	if len(values) > 0 {
		p.pinner.Pin(&values[0])
	}
	return p
}

func (p *pinned[T]) address() uintptr {
	if len(p.values) == 0 {
		return 0
	}
	return uintptr(unsafe.Pointer(&p.values[0]))
}

func (p *pinned[T]) free() { p.pinner.Unpin() }

// maxCString is longer than any string of the library that is read.
const maxCString = 1 << 24

// goString copies a C string that the library owns.
func goString(address uintptr) string {
	if address == 0 {
		return ""
	}
	all := memory[byte](address, maxCString)
	n := 0
	for n < maxCString && all[n] != 0 {
		n++
	}
	return string(all[:n])
}

// memory returns n values at an address that the library owns, without copying them.
func memory[T any](address uintptr, n int) []T {
	// The address does not point into Go's heap, so the conversion is safe; the indirection hides
	// only this conversion from vet's check.
	return unsafe.Slice((*T)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

// Levels of messages (ggml.h).
const (
	levelWarning = 3
	levelError   = 4
)

// messages are the last lines that the library logged as warnings and errors: its functions
// return only that they failed.
//
//nolint:gochecknoglobals // the library has one log
var messages logLines

type logLines struct {
	mu    sync.Mutex
	lines []string
}

const maxLogLines = 16

func collectLog(level, text, _ uintptr) uintptr {
	if l := int32(level); l == levelWarning || l == levelError {
		messages.add(goString(text))
	}
	return 0
}

func (m *logLines) add(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lines = append(m.lines, line)
	if len(m.lines) > maxLogLines {
		m.lines = m.lines[1:]
	}
}

// drain returns the lines that were logged since the last call.
func (m *logLines) drain() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	lines := m.lines
	m.lines = nil
	return lines
}
