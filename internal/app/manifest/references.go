package manifest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/spell"
)

// References are checked when the whole manifest has been read.

// edge is a function's import of another function of its app.
type edge struct {
	to string
	at pathNode
}

// target reads the target of a trigger, and checks later that it exists. kind is its key.
func (r *triggerReader) target(a *App, kind string, name *string) func(pathNode) {
	what, _ := strings.CutSuffix(kind, "websocket")
	if what == "" {
		what = "function" // that takes the events of WebSockets
	}
	return func(v pathNode) {
		r.text(name, "the name of a "+what)(v)
		wanted := *name
		r.later = append(r.later, func() {
			if names := a.targets(what); wanted != "" && !slices.Contains(names, wanted) {
				r.report(v.Node, "there is no %s %q: %s", what, wanted, spell.Hint(wanted, names))
			}
		})
	}
}

// modelName matches the names and aliases of models.
var modelName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$`)

// importReference checks that an import exists.
func (r *functionReader) importReference(a *App, function string, i Import, v pathNode) {
	switch names := a.names(i.Kind); {
	case i.Kind == ImportFunction && strings.Contains(i.Name, "/"):
		r.foreign(a, i, v)
	case i.Kind == ImportModel: // the pool has it, or will have it
		if i.Name != "" && !modelName.MatchString(i.Name) {
			r.report(v.Node, "%q is no name of a model: `outboard models` lists the pool's", i.Name)
		}
	case !slices.Contains(names, i.Name):
		r.report(v.Node, "there is no %s %q: %s%s", i.Kind.noun(), i.Name, spell.Hint(i.Name, names), declare(i))
	case i.Kind == ImportFunction:
		r.edges[function] = append(r.edges[function], edge{i.Name, v})
	}
}

// declare returns a hint how to declare an import.
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
	case ImportOutgoing:
		return fmt.Sprintf("; for a new one add: outgoing: [%q]", i.Name)
	case ImportFunction, ImportModel:
	}
	return ""
}

// foreign checks the import of another app's function, which is not known here.
func (r *functionReader) foreign(a *App, i Import, v pathNode) {
	app, function, _ := strings.Cut(i.Name, "/")
	switch {
	case labelError(app) != "" || nameError(function) != "":
		r.report(v.Node, "the function %q: write FUNCTION or APP/FUNCTION", i.Name)
	case app == a.Name:
		r.report(v.Node, "the function %q: write %s for one of the own app", i.Name, function)
	}
}

// cycles finds functions that import each other: a call could wait for itself.
func (r *functionReader) cycles(a *App) {
	done := map[string]bool{}
	for _, name := range sorted(a.Functions) {
		r.visit([]string{name}, done)
	}
}

// visit follows the imports of the last function of a path.
func (r *functionReader) visit(path []string, done map[string]bool) {
	name := path[len(path)-1]
	if done[name] {
		return
	}
	for _, e := range r.edges[name] {
		if start := slices.Index(path, e.to); start >= 0 {
			r.report(e.at.Node, "%s -> %s: a call would wait for itself; take out one of these imports",
				strings.Join(path[start:], " -> "), e.to)
			continue
		}
		r.visit(append(slices.Clone(path), e.to), done)
	}
	done[name] = true
}
