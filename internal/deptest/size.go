package deptest

import (
	"fmt"
	"maps"
	"slices"
)

// Limits bound the size of a type and a package, above which they should be split.
type Limits struct {
	// Methods is the largest allowed number of methods of a type.
	Methods int
	// Imports is the largest allowed number of the module's packages that a package imports.
	Imports int
	// Exempt holds the reasons for which a package ("internal/node") or a type
	// ("internal/node.Node") may exceed the limits.
	Exempt map[string]string
}

// CheckSize returns one line for every type and package beyond limits, and one for every exemption
// that is no longer needed.
func CheckSize(packages []Package, limits Limits) []string {
	var wrong []string
	needed := map[string]bool{}
	report := func(name, format string, args ...any) {
		needed[name] = true
		if limits.Exempt[name] == "" {
			wrong = append(wrong, name+": "+fmt.Sprintf(format, args...))
		}
	}
	for _, p := range packages {
		if n := len(p.Imports); n > limits.Imports {
			report(p.Dir, "imports %d packages of the module, at most %d", n, limits.Imports)
		}
		for _, t := range slices.Sorted(maps.Keys(p.Methods)) {
			if n := p.Methods[t]; n > limits.Methods {
				report(p.Dir+"."+t, "%d methods, at most %d", n, limits.Methods)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(limits.Exempt)) {
		if !needed[name] {
			wrong = append(wrong, name+": is exempt without need")
		}
	}
	return wrong
}
