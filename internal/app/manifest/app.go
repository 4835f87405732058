package manifest

import (
	"math"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/artifact"
	"github.com/outboard-run/outboard/internal/lazyregexp"
)

const (
	// wasmPage is the unit of a WebAssembly memory, and maxMemory the largest.
	wasmPage  = 64 << 10
	maxMemory = 1<<32 - wasmPage
	longest   = 24 * time.Hour
)

func (r *reader) app(v pathNode, a *App) {
	a.Tenant = DefaultTenant
	got := r.mapping(v, "a manifest", members{
		"app":       r.label(&a.Name),
		"tenant":    r.label(&a.Tenant),
		"functions": func(v pathNode) { (&functionReader{r, map[string][]edge{}}).functions(v, a) },
		"buckets":   func(v pathNode) { r.buckets(v, a) },
		"arenas":    func(v pathNode) { r.arenas(v, a) },
		"secrets":   func(v pathNode) { r.secrets(v, a) },
		"devices":   func(v pathNode) { (&deviceReader{r}).devices(v, a) },
		"workflows": func(v pathNode) { r.workflows(v, a) },
		"routes":    func(v pathNode) { (&triggerReader{r}).routes(v, a) },
		"subjects":  func(v pathNode) { (&triggerReader{r}).subjects(v, a) },
		"outgoing":  func(v pathNode) { r.outgoing(v, a) },
		"schedules": func(v pathNode) { (&triggerReader{r}).schedules(v, a) },
	})
	if v.Kind != yaml.MappingNode {
		return
	}
	if _, ok := got["app"]; !ok {
		r.report(v.Node, "the app has no name: begin with one, as in: app: shop")
	}
	if empty(got["functions"]) && empty(got["workflows"]) {
		r.report(v.Node, "the app does nothing: give it functions, as in: functions: {cart: {module: cart.wasm}}")
	}
}

// empty reports whether a member is missing, or has no content.
func empty(v pathNode) bool {
	return v.Node == nil || v.Tag == "!!null" || len(v.Content) == 0 && v.Kind == yaml.MappingNode
}

// functionReader reads the functions of an app.
type functionReader struct {
	*reader
	edges map[string][]edge // from functions of the app to the functions that they import
}

func (r *functionReader) functions(v pathNode, a *App) {
	a.Functions = map[string]Function{}
	r.entries(v, "functions", "cart: {module: cart.wasm}", func(name string, v pathNode) {
		a.Functions[name] = r.function(a, name, v)
	})
	r.later = append(r.later, func() { r.cycles(a) })
}

func (r *functionReader) function(a *App, name string, v pathNode) Function {
	f := Function{Entry: DefaultEntry}
	got := r.mapping(v, "a function", members{
		"module":  func(v pathNode) { r.module(v, &f.Module) },
		"args":    func(v pathNode) { r.args(v, &f.Args) },
		"entry":   r.text(&f.Entry, "the name of the module's export that runs"),
		"http":    r.boolean(&f.HTTP),
		"limits":  func(v pathNode) { r.limits(v, &f.Limits) },
		"env":     func(v pathNode) { r.env(v, &f) },
		"imports": func(v pathNode) { f.Imports = r.imports(a, name, v) },
	})
	if _, ok := got["module"]; !ok && v.Kind == yaml.MappingNode {
		r.report(v.Node, "the function has no module: name one, as in: module: cart.wasm")
	}
	return f
}

func (r *functionReader) module(v pathNode, to *string) {
	var name string
	r.text(&name, "a module: a file beside the manifest, or oci:HOST/REPO:TAG")(v)
	ref, remote := strings.CutPrefix(name, Registry)
	switch {
	case name == "":
		return
	case remote:
		if _, err := artifact.ParseReference(ref); err != nil {
			r.report(v.Node, "%v; a module is written as in oci:HOST/REPO:TAG", err)
		}
	case strings.Contains(name, "://"):
		r.report(v.Node, "%q is no file: write oci:HOST/REPO:TAG for a module in a registry", name)
	default:
		r.relative(v, name, "wasm")
	}
	*to = name
}

// relative checks the name of a file beside the manifest.
func (r *reader) relative(v pathNode, name, ending string) {
	if filepath.IsAbs(name) {
		r.report(v.Node, "%q: name a file beside the manifest, as in %s", name, "build/"+filepath.Base(strings.TrimSuffix(name, "."+ending))+"."+ending)
	}
}

func (r *functionReader) limits(v pathNode, l *Limits) {
	anySize := func(to *outboard.Bytes) func(pathNode) { return r.size(to, 1) }
	got := r.mapping(v, "limits", members{
		"memory":      r.size(&l.Memory, wasmPage),
		"deadline":    r.duration(&l.Deadline, time.Millisecond, longest),
		"fuel":        number(r.reader, &l.Fuel, 1, math.MaxInt64),
		"concurrency": number(r.reader, &l.Concurrency, 1, 1<<14),
		"queue":       number(r.reader, &l.Queue, 0, 1<<20),
		"response":    anySize(&l.Response),
		"output":      anySize(&l.Output),
		"window":      r.size(&l.Window, wasmPage),
	})
	if _, ok := got["queue"]; ok && l.Queue == 0 {
		l.Queue = -1
	}
}

var envName = lazyregexp.New(`^[A-Za-z_][A-Za-z0-9_]*$`)

// args reads the arguments of a module, which are text without NUL.
func (r *functionReader) args(v pathNode, to *[]string) {
	r.list(v, "args", "[--currency, EUR]", func(v pathNode) {
		if v.Kind != yaml.ScalarNode || strings.Contains(v.Value, "\x00") {
			r.report(v.Node, "an argument is a text, as in: args: [--currency, EUR]")
			return
		}
		*to = append(*to, v.Value)
	})
}

func (r *functionReader) env(v pathNode, f *Function) {
	if v.Tag == "!!null" {
		return
	}
	f.Env = map[string]string{}
	r.pairs(v, "env is a mapping of variables, as in: KEY: value", func(key *yaml.Node, value pathNode) {
		switch {
		case !envName.MatchString(key.Value):
			r.report(key, "the variable %q: letters, digits and _ only, not beginning with a digit", key.Value)
		case strings.ContainsRune(value.Value, 0):
			r.report(value.Node, "a variable has no zero byte")
		case r.usable(value) && value.Kind != yaml.ScalarNode:
			r.report(value.Node, "a variable's value has to be a text")
		case value.Tag != "!!null":
			f.Env[key.Value] = value.Value
		default:
			f.Env[key.Value] = ""
		}
	})
}

func importKinds() []Kind {
	return []Kind{ImportFunction, ImportArena, ImportBucket, ImportSecret, ImportDevice, ImportModel, ImportOutgoing}
}

func (r *functionReader) imports(a *App, function string, v pathNode) []Import {
	lines := map[string]int{}
	var all []Import
	r.list(v, "imports", "- bucket: seats", func(v pathNode) {
		i, named := r.oneImport(v)
		if i.Name == "" {
			return
		}
		if first := lines[i.String()]; first != 0 {
			r.report(v.Node, "%s is imported at line %d already: leave one out", i, first)
			return
		}
		lines[i.String()] = v.Line
		all = append(all, i)
		r.later = append(r.later, func() { r.importReference(a, function, i, named) })
	})
	return all
}

// oneImport reads an import, and returns it with the node of its name.
func (r *functionReader) oneImport(v pathNode) (i Import, named pathNode) {
	before, m := len(r.problems), members{"share": r.boolean(&i.Share)}
	for _, kind := range importKinds() {
		m[string(kind)] = func(v pathNode) {
			if i.Kind != "" {
				r.report(v.Node, "an import is one thing, and this is %s already: begin another one with \"- %s:\"", i, kind)
				return
			}
			i.Kind, named = kind, v
			r.text(&i.Name, "the name of the "+string(kind))(v)
		}
	}
	got := r.mapping(v, "an import", m)
	if share, ok := got["share"]; ok && i.Kind != "" && i.Kind != ImportArena && i.Kind != ImportDevice {
		r.report(share.Node, "only an arena or a device is shared or not: leave share out")
	}
	if i.Kind == "" && len(r.problems) == before {
		r.report(v.Node, "this import names nothing: write one of bucket, function, arena, secret, device, model, outgoing, as in: - bucket: seats")
	}
	return i, named
}

// buckets reads a list of names, or a mapping from names to the settings of each.
func (r *reader) buckets(v pathNode, a *App) {
	if v.Kind == yaml.MappingNode {
		r.entries(v, "buckets", "sessions: {ttl: 1h}", func(name string, v pathNode) {
			a.Buckets = append(a.Buckets, name)
			r.bucket(v, name, a)
		})
		return
	}
	lines := map[string]int{}
	r.list(v, "buckets", "[seats]", func(v pathNode) {
		if !r.scalar(v, "the name of a bucket; for more of it write: buckets: {sessions: {ttl: 1h}}") {
			return
		}
		r.name(v.Node)
		if first := lines[v.Value]; first != 0 {
			r.report(v.Node, "the bucket %q is at line %d already: leave one out", v.Value, first)
			return
		}
		lines[v.Value] = v.Line
		a.Buckets = append(a.Buckets, v.Value)
	})
}

// The bounds of a bucket's time-to-live: see bucket.MinTTL.
const (
	minTTL = time.Second
	maxTTL = 10 * 365 * 24 * time.Hour
)

func (r *reader) bucket(v pathNode, name string, a *App) {
	if v.Tag == "!!null" {
		return
	}
	var ttl time.Duration
	r.mapping(v, "a bucket", members{"ttl": r.duration(&ttl, minTTL, maxTTL)})
	if ttl == 0 {
		return
	}
	if a.BucketTTL == nil {
		a.BucketTTL = map[string]time.Duration{}
	}
	a.BucketTTL[name] = ttl.Truncate(time.Millisecond)
}

func (r *reader) arenas(v pathNode, a *App) {
	a.Arenas = map[string]outboard.Bytes{}
	r.entries(v, "arenas", "photos: 64MiB", func(name string, v pathNode) {
		var size outboard.Bytes
		r.size(&size, 1)(v)
		a.Arenas[name] = size
	})
}

func (r *reader) secrets(v pathNode, a *App) {
	a.Secrets = map[string]Secret{}
	r.entries(v, "secrets", "token: {env: TOKEN}", func(name string, v pathNode) {
		var s Secret
		before := len(r.problems)
		r.mapping(v, "a secret", members{
			"env":  r.text(&s.Env, "the name of an environment variable"),
			"file": r.text(&s.File, "the name of a file"),
		})
		if len(r.problems) == before && (s.Env == "") == (s.File == "") {
			r.report(v.Node, "a secret comes from one place: write {env: VARIABLE} or {file: path}")
		}
		a.Secrets[name] = s
	})
}

func (r *reader) workflows(v pathNode, a *App) {
	a.Workflows = map[string]string{}
	r.entries(v, "workflows", "thumbnail: thumbnail.yaml", func(name string, v pathNode) {
		var file string
		named := func(v pathNode) {
			r.text(&file, "the name of a file beside the manifest")(v)
			r.relative(v, file, "yaml")
		}
		if v.Kind != yaml.MappingNode {
			named(v)
		} else if got := r.mapping(v, "a workflow", members{"file": named, "launch": func(v pathNode) { r.launch(v, name, a) }}); got["file"].Node == nil {
			r.report(v.Node, "the workflow has no file: name one, as in: file: thumbnail.yaml")
		}
		a.Workflows[name] = file
	})
}

// launches are the launch policies.
var launches = []string{"lazy", "eager", "nimble"}

func (r *reader) launch(v pathNode, name string, a *App) {
	if !r.scalar(v, "lazy, eager or nimble") {
		return
	}
	if !slices.Contains(launches, v.Value) {
		r.report(v.Node, "%q is no way to launch steps: write lazy, eager or nimble", v.Value)
		return
	}
	if a.Launch == nil {
		a.Launch = map[string]string{}
	}
	a.Launch[name] = v.Value
}

// targets returns the names to which a trigger may lead.
func (a *App) targets(kind string) []string {
	if kind == "workflow" {
		return sorted(a.Workflows)
	}
	return sorted(a.Functions)
}

func (a *App) names(kind Kind) []string {
	switch kind {
	case ImportArena:
		return sorted(a.Arenas)
	case ImportBucket:
		return slices.Sorted(slices.Values(a.Buckets))
	case ImportSecret:
		return sorted(a.Secrets)
	case ImportDevice:
		return sorted(a.Devices)
	case ImportOutgoing:
		return a.outgoingHosts()
	case ImportFunction, ImportModel:
	}
	return sorted(a.Functions)
}
