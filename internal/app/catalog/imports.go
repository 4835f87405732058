package catalog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/outboard-run/outboard/internal/app/manifest"
)

// Foreign checks the functions that an app imports from other apps: they exist, in the same tenant,
// and no chain of calls could come back to its beginning.
func (r *Catalog) Foreign(m *manifest.Manifest) []manifest.Problem {
	var problems []manifest.Problem
	for name, f := range m.App.Functions {
		for n, i := range f.Imports {
			app, function := i.Function(m.App.Name)
			if i.Kind != manifest.ImportFunction || app == m.App.Name {
				continue
			}
			if why := r.foreign(&m.App, name, app, function); why != "" {
				problems = append(problems, m.Problem(why, "functions", name, "imports", fmt.Sprint(n), "function"))
			}
		}
	}
	slices.SortFunc(problems, func(a, b manifest.Problem) int { return strings.Compare(a.String(), b.String()) })
	return problems
}

// foreign returns the problem of an import of another app's function, "" for none.
func (r *Catalog) foreign(own *manifest.App, from, app, function string) string {
	other, ok := r.Get(app)
	switch {
	case !ok:
		return fmt.Sprintf("there is no app %q: deploy it first; there are: %s", app, strings.Join(r.Names(), ", "))
	case other.Current().App.Tenant != own.Tenant:
		return fmt.Sprintf("the app %s is of tenant %s, and this one of tenant %s: tenants never call each other", app, other.Current().App.Tenant, own.Tenant)
	}
	if _, ok := other.Current().App.Functions[function]; !ok {
		return fmt.Sprintf("the app %s has no function %q: it has %s", app, function, strings.Join(namesOf(other.Current().App.Functions), ", "))
	}
	start := own.Name + "/" + from
	if path := r.pathTo(own, start, app+"/"+function, map[string]bool{}); path != nil {
		return fmt.Sprintf("%s: a call would wait for itself; take out one of these imports", strings.Join(append([]string{start}, path...), " -> "))
	}
	return ""
}

func namesOf(functions map[string]manifest.Function) []string {
	var all []string
	for name := range functions {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

// pathTo returns the functions on a path of calls from at to start, with own as it will be
// deployed; nil if there is none.
func (r *Catalog) pathTo(own *manifest.App, start, at string, been map[string]bool) []string {
	if at == start {
		return []string{at}
	}
	if been[at] {
		return nil
	}
	been[at] = true
	app, name, _ := strings.Cut(at, "/")
	for _, i := range r.functionOf(own, app, name).Imports {
		if i.Kind != manifest.ImportFunction {
			continue
		}
		a, f := i.Function(app)
		if path := r.pathTo(own, start, a+"/"+f, been); path != nil {
			return append([]string{at}, path...)
		}
	}
	return nil
}

func (r *Catalog) functionOf(own *manifest.App, app, name string) manifest.Function {
	if app == own.Name {
		return own.Functions[name]
	}
	if other, ok := r.Get(app); ok {
		return other.Current().App.Functions[name]
	}
	return manifest.Function{}
}
