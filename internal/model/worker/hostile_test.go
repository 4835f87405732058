package worker_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
	"github.com/outboard-run/outboard/internal/model/engine"
	"github.com/outboard-run/outboard/internal/model/engine/builtin"
	"github.com/outboard-run/outboard/internal/model/gguf"
	"github.com/outboard-run/outboard/internal/model/onnxfile"
	"github.com/outboard-run/outboard/internal/model/worker"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// program is `outboard`, whose processes are the workers of this test.
const program = "../../../bin/outboard"

// A sandboxed starts workers as a node does: in processes of their own, in sandboxes.
type sandboxed struct {
	t       *testing.T
	spawner *worker.Spawner
	started int
}

func newSandboxed(t *testing.T) *sandboxed {
	t.Helper()
	path, err := filepath.Abs(program)
	if err != nil {
		t.Fatal(err)
	}
	_, err = os.Stat(path)
	need.Require(t, "outboard", err == nil, "run `make build`")
	for _, name := range []string{"onnx", "llama"} {
		_, err := builtin.Libraries(name)
		need.Require(t, name, outboard.KindOf(err) != outboard.NotFound, "run `make build`")
	}
	s := &sandboxed{t: t, spawner: &worker.Spawner{
		Command: []string{path, "internal", "model-worker"}, Namespaces: sandbox.DetectNamespaces(), Log: slog.New(slog.DiscardHandler),
	}}
	s.spawner.Open()
	t.Cleanup(s.spawner.Close)
	return s
}

// start has a new worker load content.
func (s *sandboxed) start(name string, content []byte) (*worker.Worker, error) {
	s.t.Helper()
	s.started++
	dir := filepath.Join(s.t.TempDir(), fmt.Sprint(s.started))
	files := filepath.Join(dir, "files")
	for _, d := range []string{files, filepath.Join(dir, "worker")} {
		if err := os.MkdirAll(d, 0o755); err != nil { //nolint:gosec // the worker is another user
			s.t.Fatal(err)
		}
	}
	file := "m." + map[string]string{"onnx": "onnx", "llama": "gguf"}[name]
	if err := os.WriteFile(filepath.Join(files, file), content, 0o644); err != nil { //nolint:gosec // the worker is another user
		s.t.Fatal(err)
	}
	libraries, err := builtin.Libraries(name)
	if err != nil {
		s.t.Fatal(err)
	}
	confine := &worker.Confinement{Namespaces: s.spawner.Namespaces, Dir: filepath.Join(dir, "worker"), Files: files}
	if os.Geteuid() == 0 && !s.spawner.Namespaces.User() {
		confine.UID = 0x7002ff00 + s.started
	}
	const memory = 1 << 30
	return worker.Start(s.t.Context(), worker.Options{
		Launch: s.spawner.Launcher(fmt.Sprintf("hostile-%d", s.started), memory), Engine: name, Libraries: libraries, Confine: confine,
		Source: engine.Source{Path: filepath.Join(files, file), Folder: files}, Options: engine.Options{Threads: 1, Memory: memory},
	})
}

// hostileFiles are a model's file with damages: the end is missing, numbers are as large as they can
// be, and bytes of the header are random.
func hostileFiles(valid []byte, random *rand.Rand) [][]byte {
	list := [][]byte{valid[:len(valid)/2], valid[:64]}
	for range 3 {
		header := min(len(valid), 4<<10)
		huge, noisy := bytes.Clone(valid), bytes.Clone(valid)
		binary.LittleEndian.PutUint64(huge[8+random.IntN(header-16):], 1<<62-1)
		for range 8 {
			noisy[8+random.IntN(header-8)] = byte(random.Uint32())
		}
		list = append(list, huge, noisy)
	}
	return list
}

// A hostile file harms at most its worker: it is refused, or ends its process, or is loaded and
// answers, and a model beside it goes on in the same process.
func TestHostileFilesHarmTheirWorker(t *testing.T) {
	s := newSandboxed(t)
	beside, err := s.start("onnx", onnxfile.MLP(1, 4, 8, 2).Encode())
	if err != nil {
		t.Fatal(err)
	}
	defer beside.Close()
	input := onnxfile.Floats("input", []int64{1, 4}, 1, 2, 3, 4)
	want, err := beside.Infer(t.Context(), []model.Tensor{input}, nil)
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	shape := gguf.Shape{Layers: 1, Width: 32, FeedForward: 32, Heads: 2, SharedHeads: 1, Context: 64, Type: gguf.Q8_0}
	if _, err := gguf.Random(shape, 1).WriteTo(&text); err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same damages every time
	for name, valid := range map[string][]byte{"onnx": onnxfile.MLP(2, 4, 8, 2).Encode(), "llama": text.Bytes()} {
		for i, content := range hostileFiles(valid, random) {
			w, err := s.start(name, content)
			if err != nil {
				continue
			}
			if w.Text() {
				_, err = w.Generate(t.Context(), engine.Generation{Prompt: []int32{5, 6}, MaxTokens: 4, LogProbs: -1}, func(engine.Token) error { return nil })
			} else {
				_, err = w.Infer(t.Context(), []model.Tensor{input}, nil)
			}
			t.Logf("%s, file %d is loaded, and answers: %v", name, i, err)
			if err := w.Close(); err != nil {
				t.Errorf("%s, file %d: %v", name, i, err)
			}
		}
		got, err := beside.Infer(t.Context(), []model.Tensor{input}, nil)
		if err != nil || !bytes.Equal(got[0].Data, want[0].Data) {
			t.Errorf("beside hostile files for %s: %v, %v", name, got, err)
		}
	}
	select {
	case <-beside.Done():
		t.Errorf("the model beside hostile files ended: %v", beside.Err())
	default:
	}
}
