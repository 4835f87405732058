package tenant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/app/manifest"
	"github.com/outboard-run/outboard/internal/function"
	"github.com/outboard-run/outboard/internal/spell"
	"github.com/outboard-run/outboard/internal/workflow/dsl"
)

// A version is what one manifest deployed, ready to run. It does not change, but for
// ending.
type version struct {
	number    int
	spec      *manifest.App
	home      *home
	functions map[string]*deployed
	workflows map[string]*dsl.Workflow
	digests   map[string]string // of its files

	mu      sync.Mutex
	holders int // its place in the tables, and executions
}

// A deployed is a function of a version.
type deployed struct {
	*function.Function
	version *version
	name    string
	module  string // its digest
	size    int    // of the module, in bytes
	spec    manifest.Function
	imports map[string]manifest.Import // by name, "bucket:seats"
	meter   meter
}

// hold keeps a version from ending. It fails when it has ended.
func (v *version) hold() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.holders == 0 {
		return false
	}
	v.holders++
	return true
}

// release ends the version with its last holder, after the calls under way.
func (v *version) release() error {
	v.mu.Lock()
	v.holders--
	last := v.holders == 0
	v.mu.Unlock()
	if !last {
		return nil
	}
	return v.close()
}

func (v *version) close() error {
	var first error
	for _, f := range v.functions {
		if err := f.Close(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// A recipe is what a version is made of.
type recipe struct {
	number int
	spec   *manifest.App
	file   string            // the manifest's name, for problems
	files  map[string]string // digests by the names in the manifest
	// text is the manifest's, to find the places of problems; it may be nil.
	text *manifest.Manifest
}

// build makes a version ready. Problems are the app's, an error is ours.
func (t *Tenant) build(ctx context.Context, r recipe, h *home) (*version, []manifest.Problem, error) {
	v := &version{
		number: r.number, spec: r.spec, home: h, digests: r.files, holders: 1,
		functions: map[string]*deployed{}, workflows: map[string]*dsl.Workflow{},
	}
	b := &builder{tenant: t, recipe: r, version: v}
	err := b.build(ctx)
	if err != nil || len(b.problems) > 0 {
		_ = v.close() // none of it was called
		return nil, b.problems, err
	}
	return v, nil, nil
}

// A builder makes one version and collects what is wrong with it.
type builder struct {
	tenant   *Tenant
	recipe   recipe
	version  *version
	problems []manifest.Problem
}

func (b *builder) build(ctx context.Context) error {
	for _, name := range slices.Sorted(maps.Keys(b.recipe.spec.Functions)) {
		if err := b.function(ctx, name); err != nil {
			return err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(b.recipe.spec.Workflows)) {
		if err := b.workflow(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (b *builder) function(ctx context.Context, name string) error {
	spec := b.recipe.spec.Functions[name]
	digest := b.recipe.files[spec.Module]
	module, err := b.tenant.files.read(ctx, digest)
	if err != nil {
		return fmt.Errorf("module %s of function %s: %w", spec.Module, name, err)
	}
	f, err := b.tenant.runtime.Deploy(ctx, module, b.settings(name, spec))
	if err != nil {
		b.wrong(err, "functions/"+name+"/module")
		return ctx.Err()
	}
	d := &deployed{
		Function: f, version: b.version, name: name, module: digest, size: len(module), spec: spec,
		imports: make(map[string]manifest.Import, len(spec.Imports)),
	}
	for _, i := range spec.Imports {
		d.imports[i.String()] = i
	}
	b.version.functions[name] = d
	return nil
}

func (b *builder) settings(name string, spec manifest.Function) function.Settings {
	l := spec.Limits
	s := function.Settings{
		Name: b.recipe.spec.Name + "/" + name,
		Limits: function.Limits{
			Memory: l.Memory, Deadline: l.Deadline, Fuel: l.Fuel, Concurrency: l.Concurrency, Queue: l.Queue,
			Response: l.Response, Output: l.Output,
		},
		Window: l.Window,
		Args:   []string{name},
	}
	for _, key := range slices.Sorted(maps.Keys(spec.Env)) {
		s.Env = append(s.Env, function.Variable{Name: key, Value: spec.Env[key]})
	}
	return s
}

func (b *builder) workflow(ctx context.Context, name string) error {
	file := b.recipe.spec.Workflows[name]
	text, err := b.tenant.files.read(ctx, b.recipe.files[file])
	if err != nil {
		return fmt.Errorf("workflow %s: %w", file, err)
	}
	w, err := dsl.ParseBy(dsl.Rules{Function: b.noFunction}, file, text)
	if err != nil {
		b.problems = append(b.problems, workflowProblems(file, err)...)
		return nil
	}
	b.version.workflows[name] = w
	return nil
}

// noFunction says that a workflow calls a function that is not there.
func (b *builder) noFunction(name string) string {
	if _, ok := b.recipe.spec.Functions[name]; ok {
		return ""
	}
	return fmt.Sprintf("there is no function %q in the app: %s", name, spell.Hint(name, slices.Collect(maps.Keys(b.recipe.spec.Functions))))
}

// wrong notes a problem at a place of the manifest.
func (b *builder) wrong(err error, path string) {
	if b.recipe.text != nil {
		b.problems = append(b.problems, b.recipe.text.Problem(err.Error(), strings.Split(path, "/")...))
		return
	}
	b.problems = append(b.problems, manifest.Problem{File: b.recipe.file, Text: path + ": " + err.Error()})
}

// workflowProblems are what is wrong with a workflow.
func workflowProblems(file string, err error) []manifest.Problem {
	known, ok := errors.AsType[dsl.Problems](err)
	if !ok {
		return []manifest.Problem{{File: file, Text: err.Error()}}
	}
	var all []manifest.Problem
	for _, p := range known {
		all = append(all, manifest.Problem{File: p.File, Line: p.Line, Column: max(p.Column, 1), Text: p.Text})
	}
	return all
}

// nameOf is what the manifest calls a workflow.
func (v *version) nameOf(w *dsl.Workflow) string {
	for name, have := range v.workflows {
		if have == w {
			return name
		}
	}
	return ""
}

// digestOf is the digest of a workflow's text.
func (v *version) digestOf(workflow string) string { return v.digests[v.spec.Workflows[workflow]] }

const (
	// defaultArena is how large an execution's arena is where no window is smaller. Only
	// what is written to takes memory.
	defaultArena outboard.Bytes = 64 << 20
	leastArena   outboard.Bytes = 64 << 10
)

// arenaSize is how large an arena of an execution may be, so that all functions can map
// it beside the named arenas that they import.
func (v *version) arenaSize() outboard.Bytes {
	size := defaultArena
	for _, f := range v.functions {
		if window := f.Window(); window > 0 {
			size = min(size, max(window-f.named(), leastArena))
		}
	}
	return size
}

// named is how much of its window a function needs for the arenas that it imports by
// name.
func (d *deployed) named() outboard.Bytes {
	var size outboard.Bytes
	for _, i := range d.spec.Imports {
		if i.Kind == manifest.ImportArena {
			size += d.version.spec.Arenas[i.Name]
		}
	}
	return size
}
