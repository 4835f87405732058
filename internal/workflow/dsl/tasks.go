package dsl

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

var (
	taskName     = lazyregexp.New(`^[\p{L}\p{N}_][\p{L}\p{N} _.-]{0,62}$`)
	functionName = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,62}$`)
	variableName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9_]*$`)
)

// The keys that every task may have, and the kinds, of which it must have exactly one.
var (
	commonKeys = []string{"if", "input", "output", "export", "timeout", "then", "metadata"}
	taskKinds  = []string{"call", "do", "emit", "for", "fork", "listen", "raise", "run", "set", "switch", "try", "wait"}
	// kindKeys are the further keys of a kind.
	kindKeys = map[string][]string{"call": {"with"}, "for": {"while", "do"}, "try": {"catch"}}

	refusedTask = map[string]string{
		"foreach": "listen, and then use for on what came",
	}
	refusedCalls = map[string]string{"asyncapi": "", "a2a": "", "mcp": ""}
	directives   = []string{Continue, Exit, End}
)

// tasks parses a list of named tasks.
func (r *parser) tasks(n *yaml.Node, subject string) *Tasks {
	return r.taskList(n, subject, true)
}

// taskList parses a list of named tasks. Unless follow is set, as for branches, then must
// not name another task of the list.
func (r *parser) taskList(n *yaml.Node, subject string, follow bool) *Tasks {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.report(n, "%s must be a list of tasks, each with its name: \"- NAME: {call: ...}\"", subject)
		return &Tasks{}
	}
	if r.nesting++; r.nesting > maxNesting {
		r.report(n, "tasks are nested deeper than %d", maxNesting)
		return &Tasks{}
	}
	defer func() { r.nesting-- }()
	names := r.names(n, subject)
	leads := names
	if !follow {
		leads = nil
	}
	t := &Tasks{}
	pointer := r.pointer
	for i, item := range n.Content {
		if names[i] == "" {
			continue
		}
		r.pointer = pointer + "/" + itoa(i) + "/" + escape(names[i])
		t.List = append(t.List, r.task(names[i], item.Content[1], leads))
	}
	r.pointer = pointer
	return t
}

// names returns the names of a list's tasks, "" for a task with a problem.
func (r *parser) names(n *yaml.Node, subject string) []string {
	names := make([]string, len(n.Content))
	for i, item := range n.Content {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			r.report(item, "%s: each entry must be one task with its name: \"- NAME: {call: ...}\"%s", subject, indentHint(item))
			continue
		}
		name := item.Content[0].Value
		switch {
		case !taskName.MatchString(name):
			r.report(item, "task %q: a name is made of letters, digits, \"-\", \"_\", \".\" and spaces, 63 at most", name)
		case slices.Contains(names, name):
			r.report(item, "task %q is there twice: names in a list must differ", name)
		default:
			names[i] = name
		}
	}
	return names
}

// indentHint returns a remedy for a task whose keys are not indented.
func indentHint(item *yaml.Node) string {
	if item.Kind == yaml.MappingNode && len(item.Content) > 2 {
		return "; what belongs to the task is indented below its name"
	}
	return ""
}

func (r *parser) task(name string, n *yaml.Node, leads []string) *Task {
	t := &Task{Name: name, Reference: r.pointer, Line: n.Line, Then: Continue}
	kind := r.kind(name, n)
	if kind == "" {
		return t
	}
	known := slices.Concat(commonKeys, []string{kind}, kindKeys[kind])
	f, _ := r.mapping(n, "task "+name, known, refusedTask)
	if v, err := value(n); err == nil {
		t.Definition = v
	}
	t.If = r.expression(f.keys["if"], "if")
	t.Input = r.from(f.keys["input"], "input")
	t.Output = r.as(f.keys["output"], "output")
	t.Export = r.as(f.keys["export"], "export")
	t.Timeout = r.timeout(f.keys["timeout"])
	if then := f.keys["then"]; then != nil {
		t.Then = r.then(then, leads)
	}
	if n := f.keys[kind]; n != nil {
		r.body(t, kind, n, f, leads)
	}
	return t
}

// kind returns the kind of a task.
func (r *parser) kind(name string, n *yaml.Node) string {
	if n.Kind != yaml.MappingNode {
		r.report(n, "task %s must be a mapping with one of %s", name, list(taskKinds))
		return ""
	}
	var found []string
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i].Value
		if reason, bad := refusedTask[key]; bad {
			r.report(n.Content[i], "task %s: %s is not supported: %s", name, key, reason)
			return ""
		}
		if slices.Contains(taskKinds, key) {
			found = append(found, key)
		}
	}
	if i := slices.Index(found, "do"); i >= 0 && slices.Contains(found, "for") {
		found = slices.Delete(found, i, i+1)
	}
	switch len(found) {
	case 1:
		return found[0]
	case 0:
		r.report(n, "task %s does nothing: it must have one of %s", name, list(taskKinds))
	default:
		r.report(n, "task %s has %s: only one of them can be done", name, list(found))
	}
	return ""
}

func (r *parser) then(n *yaml.Node, leads []string) string {
	text, ok := r.text(n, "then")
	switch {
	case !ok:
	case slices.Contains(directives, text) || slices.Contains(leads, text) && text != "":
		return text
	case leads == nil:
		r.report(n, "then: %s: branches run beside each other, so one leads to continue, exit or end", text)
	default:
		r.report(n, "then: %s leads nowhere: there are continue, exit, end and the tasks beside it", text)
	}
	return Continue
}

func (r *parser) body(t *Task, kind string, n *yaml.Node, f fields, leads []string) {
	switch kind {
	case "call":
		t.Call = r.call(n, f.keys["with"])
	case "do":
		r.pointer += "/do"
		t.Do = r.tasks(n, "do")
	case "emit":
		t.Emit = r.emit(n)
	case "for":
		t.For = r.loop(n, f)
	case "fork":
		t.Fork = r.fork(n)
	case "listen":
		t.Listen = r.listen(n)
	case "raise":
		t.Raise = r.raise(n)
	case "run":
		t.Run = r.run(n)
	case "set":
		t.Set = r.set(n)
	case "switch":
		t.Switch = r.cases(n, leads)
	case "try":
		t.Try = r.try(n, f)
	case "wait":
		t.Wait = &Wait{For: r.duration(n, "wait")}
	}
}

func (r *parser) call(n, with *yaml.Node) *Call {
	c := &Call{}
	name, ok := r.text(n, "call")
	if !ok {
		return c
	}
	if _, bad := refusedCalls[name]; bad {
		r.report(n, "call: %s is not supported: call a function of the app that does it", name)
		return c
	}
	if slices.Contains(services, name) {
		c.Service = r.service(name, n, with)
		return c
	}
	if !functionName.MatchString(name) {
		r.report(n, "call: %s must be the name of a function of the app", name)
	} else if !r.checkedFunctions[name] && r.rules.Function != nil {
		if problem := r.rules.Function(name); problem != "" {
			r.report(n, "%s", problem)
		}
	}
	r.checkedFunctions[name] = true
	c.Function = name
	if with == nil {
		return c
	}
	f, ok := r.mapping(with, "with", []string{"body", "entry", "meta"}, nil)
	if !ok {
		return c
	}
	if e := f.keys["entry"]; e != nil {
		c.Entry, _ = r.text(e, "with.entry")
	}
	if b := f.keys["body"]; b != nil {
		c.Body = r.template(b)
	}
	if m := f.keys["meta"]; m != nil {
		c.Meta = r.meta(m)
	}
	return c
}

func (r *parser) meta(n *yaml.Node) *Template {
	if n.Kind != yaml.MappingNode {
		r.report(n, "with.meta must be a mapping of names and texts")
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		if n.Content[i+1].Kind != yaml.ScalarNode {
			r.report(n.Content[i+1], "with.meta.%s must be a text", n.Content[i].Value)
		}
	}
	return r.template(n)
}

func (r *parser) set(n *yaml.Node) *Template {
	switch {
	case n.Kind == yaml.MappingNode && len(n.Content) > 0:
	case n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str":
		if _, ok := embraced(n.Value); ok {
			break
		}
		fallthrough
	default:
		r.report(n, "set must be a mapping of names and values, or one expression, \"${ ... }\"")
		return nil
	}
	return r.template(n)
}

// declareLocal adds a variable to the scope until the returned function is called.
func (r *expressionReader) declareLocal(name string) (forget func()) {
	before := r.locals
	r.locals = append(slices.Clip(before), name)
	return func() { r.locals = before }
}

// variable parses a variable's name.
func (r *expressionReader) variable(n *yaml.Node, subject, byDefault string) string {
	if n == nil {
		return byDefault
	}
	name, ok := r.text(n, subject)
	name = strings.TrimPrefix(name, "$")
	if ok && !variableName.MatchString(name) || slices.Contains(arguments, "$"+name) {
		r.report(n, "%s %q must be a word of letters, digits and \"_\" that is not taken", subject, name)
		return byDefault
	}
	return name
}

func (r *parser) loop(n *yaml.Node, f fields) *For {
	l := &For{Each: "item", At: "index"}
	c, _ := r.mapping(n, "for", []string{"each", "in", "at"}, nil)
	if n.Kind != yaml.MappingNode {
		return l
	}
	l.Each = r.variable(c.keys["each"], "for.each", "item")
	l.At = r.variable(c.keys["at"], "for.at", "index")
	if l.In = r.expression(c.keys["in"], "for.in"); !c.has("in") {
		r.report(n, "for has no in: it must be an expression that makes a list, \"${ .photos }\"")
	}
	defer r.declareLocal(l.Each)()
	defer r.declareLocal(l.At)()
	l.While = r.expression(f.keys["while"], "while")
	do := f.keys["do"]
	if do == nil {
		r.report(n, "for has no do: it must list the tasks of a round, beside for")
		return l
	}
	r.pointer += "/do"
	l.Do = r.tasks(do, "do")
	return l
}

func (r *parser) fork(n *yaml.Node) *Fork {
	k := &Fork{Branches: &Tasks{}}
	f, ok := r.mapping(n, "fork", []string{"branches", "compete"}, nil)
	if !ok {
		return k
	}
	if c := f.keys["compete"]; c != nil {
		k.Compete = r.boolean(c, "fork.compete")
	}
	if !f.has("branches") {
		r.report(n, "fork has no branches: it must list the tasks that run beside each other")
		return k
	}
	r.pointer += "/fork/branches"
	k.Branches = r.taskList(f.keys["branches"], "fork.branches", false)
	return k
}

func (r *parser) cases(n *yaml.Node, leads []string) []Case {
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		r.report(n, "switch must be a list of cases: \"- NAME: {when: ..., then: ...}\"")
		return nil
	}
	var cases []Case
	for _, item := range n.Content {
		if item.Kind != yaml.MappingNode || len(item.Content) != 2 {
			r.report(item, "switch: each entry must be one case with its name: \"- NAME: {when: ..., then: ...}\"%s", indentHint(item))
			continue
		}
		c := Case{Name: item.Content[0].Value, Then: Continue}
		f, ok := r.mapping(item.Content[1], "case "+c.Name, []string{"when", "then"}, nil)
		if !ok {
			continue
		}
		c.When = r.expression(f.keys["when"], "when")
		if then := f.keys["then"]; then != nil {
			c.Then = r.then(then, leads)
		} else {
			r.report(item, "case %s has no then: it must say where it leads", c.Name)
		}
		cases = append(cases, c)
	}
	return cases
}
