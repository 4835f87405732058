package llama

import (
	"bufio"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/need"
)

// More threads than processors compute a model with layers, of which some sleep at barriers, and
// every sequence has all its tokens.
func TestMoreThreadsThanProcessors(t *testing.T) {
	m := loadLayers(t, engine.Options{Threads: 8, Sequences: 4})
	if m.pool == nil {
		t.Error("the model has no pool of threads")
	}
	const tokens = 50
	var streams sync.WaitGroup
	for i := range int32(4) {
		streams.Go(func() {
			n := 0
			_, err := m.Generate(t.Context(), engine.Generation{
				Prompt: []int32{10, 17 + i, 24}, MaxTokens: tokens, LogProbs: -1, Sampling: engine.Sampling{Bias: map[int32]float32{gguf.End: -100}},
			}, func(engine.Token) error { n++; return nil })
			if err != nil || n != tokens {
				t.Errorf("stream %d has %d tokens: %v", i, n, err)
			}
		})
	}
	streams.Wait()
}

// The backend's calls of ggml_barrier reach cmd/libbarrier.
func TestBarrierIsReplaced(t *testing.T) {
	loadLayers(t, engine.Options{Threads: 2, Sequences: 1})
	begin, _ := mapping(t, backendPrefix+variants()[0]+".")
	slot := begin + barrierSlot(t)
	target := memory[uintptr](uintptr(slot), 1)[0]
	if first, last := mapping(t, "libbarrier."); uint64(target) < first || uint64(target) >= last {
		t.Errorf("ggml_barrier is at %#x, and libbarrier from %#x to %#x", target, first, last)
	}
}

func loadLayers(t *testing.T, o engine.Options) *textModel {
	t.Helper()
	_, err := openArchive()
	need.Require(t, "llama.cpp", outboard.KindOf(err) != outboard.NotFound, "make build")
	path := filepath.Join(t.TempDir(), "model.gguf")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	shape := gguf.Shape{Layers: 2, Width: 64, FeedForward: 128, Heads: 4, SharedHeads: 2, Context: 512, Type: gguf.Q8_0}
	if _, err := gguf.Random(shape, 1).WriteTo(f); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	m, err := (Engine{}).Load(t.Context(), engine.Source{Path: path}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m.(*textModel)
}

// mapping returns where this process has mapped the first embedded library with a prefix.
func mapping(t *testing.T, prefix string) (first, last uint64) {
	t.Helper()
	maps, err := os.Open("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	defer maps.Close()
	for in := bufio.NewScanner(maps); in.Scan(); {
		if !strings.Contains(in.Text(), "/memfd:"+prefix) {
			continue
		}
		var begin, end uint64
		if _, err := fmt.Sscanf(in.Text(), "%x-%x", &begin, &end); err != nil {
			t.Fatal(err)
		}
		if first == 0 {
			first = begin
		}
		last = end
	}
	if first == 0 {
		t.Fatalf("%s* is not mapped", prefix)
	}
	return first, last
}

// barrierSlot returns the offset of the pointer through which the backend calls ggml_barrier.
func barrierSlot(t *testing.T) uint64 {
	t.Helper()
	archive, err := openArchive()
	if err != nil {
		t.Fatal(err)
	}
	library, err := unpack(archive, backendPrefix+variants()[0]+".")
	if err != nil {
		t.Fatal(err)
	}
	defer library.Close()
	file, err := elf.NewFile(library)
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var slot elf.Rela64
	for in := file.Section(".rela.plt").Open(); ; {
		if err := binary.Read(in, file.ByteOrder, &slot); err != nil {
			t.Fatalf("the backend does not call ggml_barrier through its table: %v", err)
		}
		if symbols[elf.R_SYM64(slot.Info)-1].Name == "ggml_barrier" {
			return slot.Off
		}
	}
}
