package tenant

import (
	"slices"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/spell"
	"github.com/outboard-run/outboard/internal/wasmbin"
)

// httpExport is the export by which a module declares that its entry takes HTTP messages:
// guest/go/web has it.
const httpExport = "outboard_http"

// exportedFunctions returns the names of the functions that a module exports.
func exportedFunctions(module []byte) ([]string, error) {
	sections, err := wasmbin.Split(module)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range sections {
		if s.ID != wasmbin.SectionExport {
			continue
		}
		r := &wasmbin.Reader{Data: s.Body}
		for range r.Count(3) { // an export has three bytes at least
			name, kind := r.Name(), r.Byte()
			r.U32()
			if kind == 0 { // a function
				names = append(names, name)
			}
		}
		if r.Err != nil {
			return nil, r.Err
		}
	}
	return names, nil
}

// commandExport is the export of a program that runs once, from its main function to its end (WASI
// preview 1).
const commandExport = "_start"

// checkEntry refuses a function whose module does not export its entry.
func checkEntry(entry string, exports []string) error {
	switch {
	case slices.Contains(exports, entry):
		return nil
	case slices.Contains(exports, commandExport):
		return outboard.Errorf(outboard.Invalid, "", "the module exports no function %q: it is a command, which runs from its main function to its end; build a library, with -buildmode=c-shared in Go and -mexec-model=reactor in C, that exports the function", entry)
	}
	candidates := slices.DeleteFunc(slices.Clone(exports), func(name string) bool {
		return strings.HasPrefix(name, "_") || strings.HasPrefix(name, "outboard_")
	})
	return outboard.Errorf(outboard.Invalid, "", "the module exports no function %q: %s; name one with `entry`", entry, spell.Hint(entry, candidates))
}
