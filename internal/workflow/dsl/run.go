package dsl

import "go.yaml.in/yaml/v3"

// Run runs another workflow of the app.
type Run struct {
	// Namespace, Name and Version identify the workflow by its document. The version is "" for any.
	Namespace, Name, Version string
	// Input is the workflow's input. Nil means the input of the task.
	Input *Template
	// Await waits for the workflow's output, which becomes the output of the task. Otherwise the
	// task's output is its input.
	Await bool
	// Line is the task's line in the file.
	Line int
}

// Matches reports whether the workflow is the one to run.
func (r *Run) Matches(w *Workflow) bool {
	return r.Namespace == w.Namespace && r.Name == w.Name && (r.Version == "" || r.Version == w.Version)
}

// Runs returns the workflow's runs of other workflows, in the order of the file.
func (w *Workflow) Runs() []*Run {
	var all []*Run
	w.Do.walk(func(t *Task) {
		if t.Run != nil {
			all = append(all, t.Run)
		}
	})
	return all
}

var refusedRun = map[string]string{
	"container": "make a function of it and call that",
	"script":    "make a function of it and call that",
	"shell":     "make a function of it and call that",
	"return":    "a workflow returns its output",
}

func (r *parser) run(n *yaml.Node) *Run {
	out := &Run{Await: true, Line: n.Line}
	f, ok := r.mapping(n, "run", []string{"workflow", "await"}, refusedRun)
	if !ok {
		return out
	}
	if a := f.keys["await"]; a != nil {
		out.Await = r.boolean(a, "run.await")
	}
	w := f.keys["workflow"]
	if w == nil {
		r.report(n, "run has no workflow: write {workflow: {namespace: ..., name: ..., version: ...}}")
		return out
	}
	g, ok := r.mapping(w, "run.workflow", []string{"namespace", "name", "version", "input"}, nil)
	if !ok {
		return out
	}
	for key, to := range map[string]*string{"namespace": &out.Namespace, "name": &out.Name} {
		v := g.keys[key]
		if v == nil {
			r.report(w, "run.workflow has no %s", key)
			continue
		}
		if *to, ok = r.text(v, "run.workflow."+key); ok && !hostname.MatchString(*to) {
			r.report(v, "run.workflow.%s %q must be lower-case letters, digits and \"-\"", key, *to)
		}
	}
	if v := g.keys["version"]; v != nil {
		if out.Version, ok = r.text(v, "run.workflow.version"); ok && out.Version != latest && !semantic.MatchString(out.Version) {
			r.report(v, "run.workflow.version %q must be a version such as \"0.1.0\", or latest", out.Version)
		}
	}
	if out.Version == latest {
		out.Version = ""
	}
	if in := g.keys["input"]; in != nil {
		out.Input = r.template(in)
	}
	return out
}

// latest is the version of the workflow that the app has.
const latest = "latest"
