package policy

import (
	"crypto/sha256"
	"sync"
	"weak"

	"github.com/outboard-run/outboard/internal/fabric/policy/wasm"
)

// Modules caches compiled modules for as long as a set uses them, so that parsing a file again does
// not compile them again. Its zero value is empty.
type Modules struct {
	mu       sync.Mutex
	compiled map[moduleKey]weak.Pointer[wasm.Module]
}

type moduleKey struct {
	hash    [sha256.Size]byte
	options wasm.Options
}

// compile returns the compiled module, from the cache if possible. A nil Modules caches nothing.
func (m *Modules) compile(code []byte, o wasm.Options) (*wasm.Module, error) {
	if m == nil {
		return wasm.Compile(code, o)
	}
	key := moduleKey{sha256.Sum256(code), o}
	m.mu.Lock()
	defer m.mu.Unlock()
	if module := m.compiled[key].Value(); module != nil {
		return module, nil
	}
	module, err := wasm.Compile(code, o)
	if err != nil {
		return nil, err
	}
	m.store(key, module)
	return module, nil
}

func (m *Modules) store(key moduleKey, module *wasm.Module) {
	for k, p := range m.compiled {
		if p.Value() == nil {
			delete(m.compiled, k)
		}
	}
	if m.compiled == nil {
		m.compiled = map[moduleKey]weak.Pointer[wasm.Module]{}
	}
	m.compiled[key] = weak.Make(module)
}
