package wasmbin

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/tetratelabs/wazero"
)

// FuzzModule reads any bytes as a module. Nothing may panic, nothing is read beyond the end, and the
// code of what the engine compiles is read to its end.
func FuzzModule(f *testing.F) {
	files, err := filepath.Glob("../fabric/policy/wasm/testdata/*.wasm")
	if err != nil || len(files) == 0 {
		f.Fatalf("no modules to begin with: %v", err)
	}
	for _, name := range files {
		file, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(file)
	}
	ctx := context.Background()
	engine := wazero.NewRuntimeWithConfig(ctx, wazero.NewRuntimeConfigInterpreter())
	f.Cleanup(func() { _ = engine.Close(ctx) })
	f.Fuzz(func(t *testing.T, file []byte) {
		err := readAll(t, file)
		if err == nil || len(file) > 64<<10 {
			return
		}
		if compiled, invalid := engine.CompileModule(ctx, file); invalid == nil {
			_ = compiled.Close(ctx)
			t.Errorf("the engine compiles what is refused here: %v", err)
		}
	})
}

// readAll reads the instructions of all functions.
func readAll(t *testing.T, file []byte) error {
	t.Helper()
	sections, err := Split(file)
	if err != nil {
		return err
	}
	for _, s := range sections {
		if s.ID != SectionCode {
			continue
		}
		r := &Reader{Data: s.Body}
		for range r.Count(2) {
			body := &Reader{Data: r.Bytes(r.Count(1))}
			body.Locals()
			for body.More() {
				i := body.Instruction()
				if body.Err == nil && (i.End <= i.At || i.End > len(body.Data)) {
					t.Fatalf("instruction from %d to %d of %d", i.At, i.End, len(body.Data))
				}
				i.EachLabel(body.Data, func(uint32) {})
			}
			if body.Err != nil {
				return body.Err
			}
		}
		if r.Err != nil {
			return r.Err
		}
	}
	return nil
}
