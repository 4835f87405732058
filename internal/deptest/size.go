package deptest

import (
	"fmt"
	"maps"
	"slices"
)

// Limits bound what one type and one package may grow to before it is several things.
type Limits struct {
	// Methods is the largest number of methods of a type.
	Methods int
	// Imports is the largest number of packages of the module that a package imports.
	Imports int
	// Exempt has the reason why a package ("internal/node") or a type
	// ("internal/node.Node") may exceed the limit.
	Exempt map[string]string
}

// CheckSize returns one line for every type and package beyond limits, and one for every
// exemption that nothing needs any more.
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
