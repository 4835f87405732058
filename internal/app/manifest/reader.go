package manifest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/spell"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// reader reads the YAML of a manifest and collects its problems.
type reader struct {
	file     string
	problems Problems
	places   map[string]position
	later    []func() // checks of references, made when the whole manifest has been read
}

type position struct{ line, column int }

// pathNode is a value of the manifest with its path.
type pathNode struct {
	*yaml.Node
	path string
}

func (v pathNode) member(key string, n *yaml.Node) pathNode {
	return pathNode{n, strings.TrimPrefix(v.path+"/"+key, "/")}
}

// report adds a problem at a node.
func (r *reader) report(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{r.file, max(n.Line, 1), max(n.Column, 1), fmt.Sprintf(format, args...)})
}

// indentedByTab is a line that YAML can't read.
var indentedByTab = lazyregexp.New(`(?m)^ *\t[\t ]*[^\t #\n]`)

// bracedPath is a path with a parameter within braces, where it needs quotes.
var bracedPath = lazyregexp.New(`\{[^"'#]*\bpath: *([^"' ][^,]*\{[^},]*\})`)

// syntax adds the problem for an error of the YAML package.
func (r *reader) syntax(text []byte, err error) {
	for i, line := range strings.Split(string(text), "\n") {
		if m := bracedPath.FindStringSubmatchIndex(line); m != nil {
			r.problems = append(r.problems, Problem{
				r.file, i + 1, len([]rune(line[:m[2]])) + 1, fmt.Sprintf("put quotes around a path with braces: path: %q", line[m[2]:m[3]]),
			})
		}
	}
	if len(r.problems) > 0 {
		return
	}
	if m := indentedByTab.FindIndex(text); m != nil && strings.Contains(err.Error(), "cannot start any token") {
		r.problems = append(r.problems, Problem{r.file, 1 + bytes.Count(text[:m[1]], []byte("\n")), 1, "there is a tab before the first word: YAML wants blanks there"})
		return
	}
	line, subject := yamlerror.Split(err, string(text))
	r.problems = append(r.problems, Problem{r.file, line, 1, "this is no YAML: " + subject})
}

// usable reports whether a value can be read. An alias can't: it is a problem.
func (r *reader) usable(v pathNode) bool {
	if v.Kind == yaml.AliasNode {
		r.report(v.Node, "aliases are not understood: write it out")
		return false
	}
	return true
}

// pairs calls f with each pair of a mapping.
func (r *reader) pairs(v pathNode, want string, f func(key *yaml.Node, value pathNode)) {
	switch {
	case !r.usable(v):
		return
	case v.Kind != yaml.MappingNode:
		r.report(v.Node, "%s", want)
		return
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(v.Content); i += 2 {
		key, value := v.Content[i], v.member(v.Content[i].Value, v.Content[i+1])
		switch {
		case key.Kind != yaml.ScalarNode:
			r.report(key, "a key must be a word")
		case key.Value == "<<" && key.Style == 0:
			r.report(key, "merging is not understood: write it out")
		case seen[key.Value] != 0:
			r.report(key, "%s is here twice, at line %d already: keep one", key.Value, seen[key.Value])
		default:
			seen[key.Value] = key.Line
			r.places[value.path] = position{value.Line, value.Column}
			f(key, value)
		}
	}
}

// members are the keys that a mapping may have, with the functions that read their values.
type members map[string]func(pathNode)

// mapping calls the function of each member, and returns the members that are present.
func (r *reader) mapping(v pathNode, subject string, m members) map[string]pathNode {
	got := map[string]pathNode{}
	known := slices.Collect(maps.Keys(m))
	want := subject + " is a mapping with: " + strings.Join(slices.Sorted(slices.Values(known)), ", ")
	r.pairs(v, want, func(key *yaml.Node, value pathNode) {
		f := m[key.Value]
		if f == nil {
			// The intended key counts as present, so that it is not also reported as missing.
			got[spell.Closest(key.Value, known)] = value
			r.report(key, "%s has no key %q: %s", subject, key.Value, spell.Hint(key.Value, known))
			return
		}
		got[key.Value] = value
		if r.usable(value) {
			f(value)
		}
	})
	return got
}

// entries calls f with each entry of a mapping of names.
func (r *reader) entries(v pathNode, subject, example string, f func(name string, value pathNode)) {
	if v.Tag == "!!null" {
		return
	}
	r.pairs(v, fmt.Sprintf("%s is a mapping of names, as in: %s", subject, example), func(key *yaml.Node, value pathNode) {
		r.name(key)
		if r.usable(value) {
			f(key.Value, value)
		}
	})
}

// list calls f with each item.
func (r *reader) list(v pathNode, subject, example string, f func(pathNode)) {
	switch {
	case !r.usable(v), v.Tag == "!!null":
	case v.Kind != yaml.SequenceNode:
		r.report(v.Node, "%s is a list, as in: %s", subject, example)
	default:
		for i, n := range v.Content {
			item := v.member(strconv.Itoa(i), n)
			r.places[item.path] = position{n.Line, n.Column}
			if r.usable(item) {
				f(item)
			}
		}
	}
}

// name checks that a node is a name.
func (r *reader) name(n *yaml.Node) {
	if why := nameError(n.Value); why != "" {
		r.report(n, "the name %q %s%s", n.Value, why, suggestion(suggestName(n.Value, false)))
	}
}

// label reads the name of an app or a tenant.
func (r *reader) label(to *string) func(pathNode) {
	return func(v pathNode) {
		if why := labelError(v.Value); !r.scalar(v, "a name") {
			return
		} else if why != "" {
			r.report(v.Node, "the name %q %s%s", v.Value, why, suggestion(suggestName(v.Value, true)))
		}
		*to = v.Value
	}
}

func suggestion(name string) string {
	if name == "" {
		return ""
	}
	return fmt.Sprintf(": write %q", name)
}

func (r *reader) scalar(v pathNode, want string) bool {
	if v.Kind != yaml.ScalarNode || v.Tag == "!!null" {
		r.report(v.Node, "this has to be %s", want)
		return false
	}
	return true
}

// text reads a text that is not empty.
func (r *reader) text(to *string, want string) func(pathNode) {
	return func(v pathNode) {
		switch {
		case !r.scalar(v, want):
		case v.Value == "":
			r.report(v.Node, "this is empty: it has to be %s", want)
		default:
			*to = v.Value
		}
	}
}

func (r *reader) boolean(to *bool) func(pathNode) {
	return func(v pathNode) {
		if v.Tag != "!!bool" {
			r.report(v.Node, "%q is neither true nor false", v.Value)
			return
		}
		*to = strings.EqualFold(v.Value, "true")
	}
}

// size reads a size within bounds.
func (r *reader) size(to *outboard.Bytes, least outboard.Bytes) func(pathNode) {
	return func(v pathNode) {
		if !r.scalar(v, "a size, such as 64MiB") {
			return
		}
		n, err := outboard.ParseBytes(v.Value)
		switch {
		case err != nil:
			r.report(v.Node, "%v", err)
		case n < least || n > maxMemory:
			r.report(v.Node, "%s is %d bytes: want at least %v and less than 4GiB, with a unit, as in 64MiB", v.Value, uint64(n), least)
		default:
			*to = n
		}
	}
}

// duration reads a time within bounds.
func (r *reader) duration(to *time.Duration, least, most time.Duration) func(pathNode) {
	return func(v pathNode) {
		d, err := time.ParseDuration(v.Value)
		switch {
		case !r.scalar(v, "a time, such as 500ms or 2s"):
		case err != nil && isNumber(v.Value):
			r.report(v.Node, "%s has no unit: write %sms, %ss or %sm", v.Value, v.Value, v.Value, v.Value)
		case err != nil:
			r.report(v.Node, "%q is no time: write it as in 500ms, 2s or 1m30s", v.Value)
		case d < least || d > most:
			r.report(v.Node, "%s: want %v to %v", v.Value, least, most)
		default:
			*to = d
		}
	}
}

func isNumber(s string) bool {
	_, err := strconv.ParseFloat(s, 64)
	return err == nil
}

// number reads a whole number within bounds.
func number[T int | int64](r *reader, to *T, least, most T) func(pathNode) {
	return func(v pathNode) {
		n, err := strconv.ParseInt(strings.ReplaceAll(v.Value, "_", ""), 10, 64)
		switch {
		case !r.scalar(v, "a whole number"):
		case err != nil:
			r.report(v.Node, "%q is no whole number", v.Value)
		case n < int64(least) || n > int64(most):
			r.report(v.Node, "%s: want %d to %d", v.Value, least, most)
		default:
			*to = T(n)
		}
	}
}
