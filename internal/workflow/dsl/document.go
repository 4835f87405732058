package dsl

import (
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

var (
	hostname = lazyregexp.New(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)
	semantic = lazyregexp.New(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`)
)

// Constructs of the DSL that are not supported, with the remedy.
var (
	refusedWorkflow = map[string]string{
		"schedule": "start the workflow by `routes`, `subjects` or `schedules` of the app's manifest",
	}
	refusedUse = map[string]string{
		"extensions": "write the tasks where they are needed",
		"functions":  "functions are those of the app's manifest",
		"catalogs":   "functions are those of the app's manifest",
	}
	refusedSchema = map[string]string{
		"schema": "check the data with an expression and raise, or in a function",
	}
)

// workflow parses the document.
func (r *parser) workflow(n *yaml.Node) *Workflow {
	f, _ := r.mapping(n, "a workflow", []string{"document", "input", "use", "do", "timeout", "output", "evaluate"}, refusedWorkflow)
	if n.Kind != yaml.MappingNode {
		return nil
	}
	w := &Workflow{}
	r.document(f, w)
	if u := f.keys["use"]; u != nil {
		r.use(u)
	}
	if e := f.keys["evaluate"]; e != nil {
		r.evaluate(e)
	}
	w.Input = r.from(f.keys["input"], "input")
	w.Output = r.as(f.keys["output"], "output")
	w.Timeout = r.timeout(f.keys["timeout"])
	if do := f.keys["do"]; do != nil {
		r.pointer = "/do"
		w.Do = r.tasks(do, "do")
	} else {
		r.report(n, "the workflow has no do: it must list the tasks")
	}
	w.Definition = r.definition(n)
	return w
}

func (r *parser) definition(n *yaml.Node) map[string]any {
	v, err := value(n)
	if err != nil {
		r.report(n, "%v", err)
	}
	m, _ := v.(map[string]any)
	return m
}

func (r *parser) document(f fields, w *Workflow) {
	n := f.keys["document"]
	if n == nil {
		r.report(f.node, "the workflow has no document: it must have document with dsl, namespace, name and version")
		return
	}
	d, _ := r.mapping(n, "document", []string{"dsl", "namespace", "name", "version", "title", "summary", "tags", "metadata"}, nil)
	if n.Kind != yaml.MappingNode {
		return
	}
	if dsl := r.requiredText(d, "dsl", semantic, "the DSL's version, \"1.0.0\""); dsl != "" && !strings.HasPrefix(dsl, "1.0.") {
		r.report(d.keys["dsl"], "dsl %s is not supported: 1.0.x is", dsl)
	}
	w.Namespace = r.requiredText(d, "namespace", hostname, "lower-case letters, digits and \"-\"")
	w.Name = r.requiredText(d, "name", hostname, "lower-case letters, digits and \"-\"")
	w.Version = r.requiredText(d, "version", semantic, "a version such as \"0.1.0\"")
}

func (r *parser) requiredText(f fields, key string, pattern *lazyregexp.Regexp, want string) string {
	n := f.keys[key]
	if n == nil {
		r.report(f.node, "document has no %s: it must have %s", key, want)
		return ""
	}
	text, ok := r.text(n, "document."+key)
	if ok && !pattern.MatchString(text) {
		r.report(n, "document.%s %q must be %s", key, text, want)
	}
	return text
}

func (r *parser) evaluate(n *yaml.Node) {
	f, ok := r.mapping(n, "evaluate", []string{"language", "mode"}, nil)
	if !ok {
		return
	}
	for key, only := range map[string]string{"language": "jq", "mode": "strict"} {
		if v := f.keys[key]; v != nil && v.Value != only {
			r.report(v, "evaluate.%s %s is not supported: %s is", key, v.Value, only)
		}
	}
}

// use parses the definitions to which tasks refer by name.
func (r *definitions) use(n *yaml.Node) {
	f, ok := r.mapping(n, "use", []string{"authentications", "errors", "retries", "secrets", "timeouts"}, refusedUse)
	if !ok {
		return
	}
	r.errors, r.retries, r.timeouts = map[string]*Template{}, map[string]*Retry{}, map[string]*yaml.Node{}
	r.secrets(f.keys["secrets"])
	r.authentications = map[string]*yaml.Node{}
	r.eachEntry(f.keys["authentications"], "use.authentications", func(name string, n *yaml.Node) { r.authentications[name] = n })
	r.eachEntry(f.keys["errors"], "use.errors", func(name string, n *yaml.Node) { r.errors[name] = r.errorOf(n) })
	r.eachEntry(f.keys["retries"], "use.retries", func(name string, n *yaml.Node) { r.retries[name] = r.retry(n, nil) })
	r.eachEntry(f.keys["timeouts"], "use.timeouts", func(name string, n *yaml.Node) {
		if r.timeout(n); n.Kind == yaml.MappingNode {
			r.timeouts[name] = n
		}
	})
}

// secrets parses use.secrets, the names of secrets that the workflow uses.
func (r *definitions) secrets(n *yaml.Node) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode {
		r.report(n, "use.secrets must be a list of names of secrets")
		return
	}
	for _, name := range n.Content {
		if text, ok := r.text(name, "use.secrets"); ok {
			r.checkSecret(name, text)
		}
	}
}

// checkSecret reports a secret that must not be used.
func (r *definitions) checkSecret(n *yaml.Node, name string) {
	if r.rules.Secret == nil {
		return
	}
	if problem := r.rules.Secret(name); problem != "" {
		r.report(n, "%s", problem)
	}
}

func (r *yamlReader) eachEntry(n *yaml.Node, subject string, f func(string, *yaml.Node)) {
	if n == nil {
		return
	}
	if n.Kind != yaml.MappingNode {
		r.report(n, "%s must be a mapping of names", subject)
		return
	}
	for i := 0; i < len(n.Content); i += 2 {
		f(n.Content[i].Value, n.Content[i+1])
	}
}

// from parses input; as parses output and export.
func (r *expressionReader) from(n *yaml.Node, subject string) *Template {
	return r.transform(n, subject, "from")
}

func (r *expressionReader) as(n *yaml.Node, subject string) *Template {
	return r.transform(n, subject, "as")
}

func (r *expressionReader) transform(n *yaml.Node, subject, key string) *Template {
	if n == nil {
		return nil
	}
	f, ok := r.mapping(n, subject, []string{key}, refusedSchema)
	if !ok || !f.has(key) {
		return nil
	}
	return r.expressions(f.keys[key], subject+"."+key)
}

// timeout parses {after: DURATION} or a name in use.timeouts.
func (r *definitions) timeout(n *yaml.Node) time.Duration {
	switch {
	case n == nil:
		return 0
	case n.Kind == yaml.ScalarNode:
		named := r.timeouts[n.Value]
		if named == nil {
			r.report(n, "timeout %q is not in use.timeouts: write {after: {seconds: 10}}, or define it there", n.Value)
			return 0
		}
		return r.timeout(named)
	}
	f, ok := r.mapping(n, "timeout", []string{"after"}, nil)
	if !ok {
		return 0
	}
	if !f.has("after") {
		r.report(n, "timeout has no after: write {after: {seconds: 10}}")
		return 0
	}
	d := r.duration(f.keys["after"], "timeout.after")
	if d == 0 {
		r.report(n, "the timeout is zero: it must be longer, such as {after: {seconds: 10}}")
	}
	return d
}

// Functions returns the functions that the workflow calls, with the line of the
// first call of each, in the order of the file.
func (w *Workflow) Functions() []Use {
	var uses []Use
	w.Do.walk(func(t *Task) {
		if t.Call != nil && t.Call.Service == nil && !slices.ContainsFunc(uses, func(u Use) bool { return u.Name == t.Call.Function }) {
			uses = append(uses, Use{Name: t.Call.Function, Line: t.Line})
		}
	})
	return uses
}

// Use is a name and where it is used.
type Use struct {
	Name string
	Line int
}

// walk calls f with each task in pre-order.
func (t *Tasks) walk(f func(*Task)) {
	if t == nil {
		return
	}
	for _, task := range t.List {
		f(task)
		switch {
		case task.Do != nil:
			task.Do.walk(f)
		case task.For != nil:
			task.For.Do.walk(f)
		case task.Fork != nil:
			task.Fork.Branches.walk(f)
		case task.Try != nil:
			task.Try.Do.walk(f)
			task.Try.Catch.walk(f)
		}
	}
}
