package dsl

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
	"github.com/outboard-run/outboard/internal/spell"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// Problem is one error in a workflow.
type Problem struct {
	File         string
	Line, Column int
	// Text describes the error and its remedy.
	Text string
}

func (p Problem) Error() string {
	return p.File + ":" + strconv.Itoa(p.Line) + ":" + strconv.Itoa(p.Column) + ": " + p.Text
}

// Problems are all errors in a workflow, in the order of its lines.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, problem := range p {
		lines[i] = problem.Error()
	}
	return strings.Join(lines, "\n")
}

const (
	// maxSource bounds a file.
	maxSource = 1 << 20
	// maxNodes bounds the YAML nodes of a file.
	maxNodes = 50_000
	// maxNesting bounds the nesting of tasks.
	maxNesting = 32
)

// Rules restrict what a workflow may use. The zero value allows everything.
type Rules struct {
	// Function, if not nil, returns why a function must not be called, "" if it may be.
	Function func(name string) string
	// Host, if not nil, returns why requests to a host, "HOST" or "HOST:PORT" of a URI of the
	// scheme, must not be sent, "" if they may be.
	Host func(scheme, host string) string
	// Service, if not nil, returns why a service of the pool must not be called, "" if it may be.
	Service func(name string) string
	// Secret, if not nil, returns why a secret must not be used, "" if it may be.
	Secret func(name string) string
}

// Parse parses a workflow in YAML, or in JSON, which is YAML. The file's name is for
// errors, which are Problems.
func Parse(file string, source []byte) (*Workflow, error) { return ParseBy(Rules{}, file, source) }

// ParseBy is Parse with rules. Violations are among the Problems.
func ParseBy(rules Rules, file string, source []byte) (*Workflow, error) {
	if len(source) > maxSource {
		return nil, Problems{{File: file, Line: 1, Column: 1, Text: "the file is larger than 1 MiB"}}
	}
	var root yaml.Node
	if err := yaml.Unmarshal(source, &root); err != nil {
		return nil, syntax(file, source, err)
	}
	if len(root.Content) == 0 {
		return nil, Problems{{File: file, Line: 1, Column: 1, Text: "the file is empty: it must have document and do"}}
	}
	w, err := parseNode(rules, file, root.Content[0])
	if line := yamlerror.SecondDocument(source); line > 0 && err == nil {
		return nil, Problems{{File: file, Line: line, Column: 1, Text: "a second document: a file has one workflow"}}
	}
	return w, err
}

// syntax converts an error of the YAML parser to a problem.
func syntax(file string, source []byte, err error) Problems {
	line, text := yamlerror.Split(err, string(source))
	return Problems{{File: file, Line: line, Column: 1, Text: "this is no YAML: " + text}}
}

// ParseNode parses a workflow that is part of a larger file.
func ParseNode(file string, node *yaml.Node) (*Workflow, error) {
	return parseNode(Rules{}, file, node)
}

func parseNode(rules Rules, file string, node *yaml.Node) (*Workflow, error) {
	r := &parser{
		definitions:      &definitions{expressionReader: &expressionReader{yamlReader: &yamlReader{file: file}}, rules: rules},
		checkedFunctions: map[string]bool{},
	}
	if r.checkTree(node, &treeSize{}) {
		if w := r.workflow(node); len(r.problems) == 0 {
			return w, nil
		}
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return nil, r.problems
}

// parser parses the tasks of one file.
type parser struct {
	*definitions
	checkedFunctions map[string]bool

	nesting int
	pointer string // JSON pointer of the task that is parsed (RFC 6901)
}

// yamlReader decodes YAML values and collects the problems.
type yamlReader struct {
	file     string
	problems Problems
}

func (r *yamlReader) report(n *yaml.Node, format string, args ...any) {
	r.problems = append(r.problems, Problem{
		File: r.file, Line: max(n.Line, 1), Column: max(n.Column, 1), Text: fmt.Sprintf(format, args...),
	})
}

type treeSize struct{ seen, depth int }

// checkTree checks that a document is a tree of values that JSON can represent.
func (r *yamlReader) checkTree(n *yaml.Node, c *treeSize) bool {
	c.seen++
	c.depth++
	defer func() { c.depth-- }()
	switch {
	case c.seen > maxNodes:
		r.report(n, "the file has more than %d values", maxNodes)
		return false
	case c.depth > maxDepth:
		r.report(n, "values are nested deeper than %d", maxDepth)
		return false
	case n.Kind == yaml.AliasNode:
		r.report(n, "aliases (*%s) are not read: write it out, or use `use:`", n.Value)
		return false
	case n.Kind == yaml.MappingNode && !r.checkKeys(n):
		return false
	}
	for _, child := range n.Content {
		if !r.checkTree(child, c) {
			return false
		}
	}
	return true
}

// checkKeys checks a mapping's keys.
func (r *yamlReader) checkKeys(n *yaml.Node) bool {
	seen := make(map[string]bool, len(n.Content)/2)
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		switch {
		case key.Kind != yaml.ScalarNode:
			r.report(key, "a key must be a text")
			return false
		case seen[key.Value]:
			r.report(key, "%q is there twice", key.Value)
			return false
		}
		seen[key.Value] = true
	}
	return true
}

// fields are a mapping's values by their keys.
type fields struct {
	node *yaml.Node
	keys map[string]*yaml.Node
}

func (f fields) has(key string) bool { return f.keys[key] != nil }

// mapping returns the fields of n, all of which must be known. refused has the constructs
// of the DSL that are not supported, with their remedies.
func (r *yamlReader) mapping(n *yaml.Node, subject string, known []string, refused map[string]string) (fields, bool) {
	f := fields{node: n, keys: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		r.report(n, "%s must be a mapping with %s", subject, list(known))
		return f, false
	}
	good := true
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		switch reason, bad := refused[key.Value]; {
		case bad:
			r.report(key, "%s: %s is not supported: %s", subject, key.Value, reason)
			good = false
		case !slices.Contains(known, key.Value):
			r.report(key, "%s has no %q: %s", subject, key.Value, spell.Hint(key.Value, known))
			good = false
		default:
			f.keys[key.Value] = value
		}
	}
	return f, good
}

func list(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// text returns a scalar that is a text.
func (r *yamlReader) text(n *yaml.Node, subject string) (string, bool) {
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!str" {
		r.report(n, "%s must be a text%s", subject, quoteHint(n))
		return "", false
	}
	return n.Value, true
}

func quoteHint(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Value != "" {
		return fmt.Sprintf(": write %q", n.Value)
	}
	return ""
}

func (r *yamlReader) boolean(n *yaml.Node, subject string) bool {
	var v bool
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!bool" || n.Decode(&v) != nil {
		r.report(n, "%s must be true or false", subject)
	}
	return v
}

func (r *yamlReader) integer(n *yaml.Node, subject string, least, most int) int {
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || n.ShortTag() != "!!int" || err != nil || v < least || v > most {
		r.report(n, "%s must be a whole number from %d to %d", subject, least, most)
		return least
	}
	return v
}

var errNoJSON = errors.New("this is no value that JSON has")

// value converts a node to a JSON value.
func value(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		for i := 0; i < len(n.Content); i += 2 {
			v, err := value(n.Content[i+1])
			if err != nil {
				return nil, err
			}
			out[n.Content[i].Value] = v
		}
		return out, nil
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, e := range n.Content {
			var err error
			if out[i], err = value(e); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return scalar(n)
	}
}

// jsonNumber is the syntax of a number (RFC 8259, section 6).
var jsonNumber = lazyregexp.New(`^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$`)

// wholeNumber is a decimal number without a fraction.
var wholeNumber = lazyregexp.New(`^-?(0|[1-9]\d*)$`)

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil //nolint:nilnil // This is the value null.
	case "!!str", "!!timestamp", "!!merge":
		if n.Style == 0 && jsonNumber.MatchString(n.Value) {
			return json.Number(n.Value), nil // exceeds the range of YAML's floats
		}
		return n.Value, nil
	}
	var v any
	if err := n.Decode(&v); err != nil {
		return nil, errNoJSON
	}
	switch v := v.(type) {
	case bool, int:
		return v, nil
	case int64:
		return json.Number(strconv.FormatInt(v, 10)), nil
	case uint64:
		return json.Number(strconv.FormatUint(v, 10)), nil
	case float64:
		switch {
		case v-v != 0:
			return nil, errNoJSON
		case wholeNumber.MatchString(n.Value): // a float would lose digits
			return json.Number(n.Value), CheckNumber(json.Number(n.Value))
		}
		return v, nil
	}
	return nil, errNoJSON
}
