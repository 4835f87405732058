package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/spell"
)

// What refers to something is looked at when all of the manifest has been read.

// An edge is a function's import of another one of its app.
type edge struct {
	to string
	at at
}

// target checks, later, where a trigger leads. kind is its member.
func (r *reader) target(a *App, kind string, name *string) func(at) {
	what, _ := strings.CutSuffix(kind, "websocket")
	if what == "" {
		what = "function" // that takes the events of WebSockets
	}
	return func(v at) {
		r.text(name, "the name of a "+what)(v)
		wanted := *name
		r.later = append(r.later, func() {
			if names := a.targets(what); wanted != "" && !slices.Contains(names, wanted) {
				r.wrong(v.Node, "there is no %s %q: %s", what, wanted, spell.Hint(wanted, names))
			}
		})
	}
}

// importReference checks what a function imports.
func (r *reader) importReference(a *App, function string, i Import, v at) {
	switch names := a.names(i.Kind); {
	case i.Kind == ImportFunction && strings.Contains(i.Name, "/"):
		r.foreign(a, i, v)
	case !slices.Contains(names, i.Name):
		r.wrong(v.Node, "there is no %s %q: %s%s", i.Kind, i.Name, spell.Hint(i.Name, names), declare(i))
	case i.Kind == ImportFunction:
		r.edges[function] = append(r.edges[function], edge{i.Name, v})
	}
}

// declare says how to have what is imported.
func declare(i Import) string {
	switch i.Kind {
	case ImportBucket:
		return fmt.Sprintf("; for a new one add: buckets: [%s]", i.Name)
	case ImportArena:
		return fmt.Sprintf("; for a new one add: arenas: {%s: 64MiB}", i.Name)
	case ImportSecret:
		return fmt.Sprintf("; for a new one add: secrets: {%s: {env: VARIABLE}}", i.Name)
	case ImportDevice:
		return fmt.Sprintf("; for a new one add: devices: {%s: {type: gpu, memory: 512MiB}}", i.Name)
	case ImportFunction:
	}
	return ""
}

// foreign checks the import of another app's function, which is not known here.
func (r *reader) foreign(a *App, i Import, v at) {
	app, function, _ := strings.Cut(i.Name, "/")
	switch {
	case labelError(app) != "" || nameError(function) != "":
		r.wrong(v.Node, "the function %q: write FUNCTION or APP/FUNCTION", i.Name)
	case app == a.Name:
		r.wrong(v.Node, "the function %q: write %s for one of the own app", i.Name, function)
	}
}

// cycles finds functions that import each other: a call could wait for itself.
func (r *reader) cycles(a *App) {
	done := map[string]bool{}
	for _, name := range sorted(a.Functions) {
		r.follow([]string{name}, done)
	}
}

// follow goes from the last of a way to the functions that it imports.
func (r *reader) follow(way []string, done map[string]bool) {
	name := way[len(way)-1]
	if done[name] {
		return
	}
	for _, e := range r.edges[name] {
		if start := slices.Index(way, e.to); start >= 0 {
			r.wrong(e.at.Node, "%s -> %s: a call would wait for itself; take out one of these imports",
				strings.Join(way[start:], " -> "), e.to)
			continue
		}
		r.follow(append(slices.Clone(way), e.to), done)
	}
	done[name] = true
}
