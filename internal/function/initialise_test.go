package function

import (
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/function/assemble"
)

// A module that ends at its beginning is refused with what it wrote, in lines and not for
// ever, and without the engine's stack.
func TestInitTellsWhatWasWritten(t *testing.T) {
	r := open(t, Options{})
	for name, test := range map[string]struct{ text, want string }{
		"a panic": {"panic: no boat\n\ngoroutine 1\n", "wasm error: unreachable; it wrote:\n  panic: no boat\n  \n  goroutine 1"},
		"much":    {strings.Repeat("line\n", 99), "wasm error: unreachable; it wrote:" + strings.Repeat("\n  line", longWords) + "\n  ..."},
		"no text": {"\xff", "wasm error: unreachable; it wrote:\n  ?"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := r.Deploy(t.Context(), writesAndTraps(test.text), Settings{Name: "app/bad", Limits: Limits{Memory: 1 << 20}})
			if want := "deploy app/bad: initialise: outboard:start: " + test.want; err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	}
}

// writesAndTraps is a module whose start writes to its standard error.
func writesAndTraps(text string) []byte {
	const at = 32
	iovec := []byte{at, 0, 0, 0, byte(len(text)), byte(len(text) >> 8), 0, 0}
	return assemble.File(
		assemble.Types(assemble.Type([]byte{i32, i32, i32, i32}, []byte{i32}), assemble.Type(nil, nil)),
		assemble.Imports(assemble.Import(wasiModule, "fd_write", 0, 0)),
		assemble.Functions(1), assemble.Memory(1, 1),
		assemble.Exports(assemble.Export("memory", 2, 0), assemble.Export("handle", 0, 1)), assemble.Start(1),
		assemble.Code(assemble.Body(0x41, 2, 0x41, 0, 0x41, 1, 0x41, 16, 0x10, 0, 0x1a, 0x00)), // fd_write(2, 0, 1, 16), unreachable
		assemble.Data(assemble.Active(0, iovec...), assemble.Active(at, []byte(text)...)),
	)
}
