package dsl

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/itchyny/gojq"
)

// Expressions are untrusted, and the interpreter bounds neither the size of texts
// and arrays nor the time of a single built-in function. So each operation whose
// result can grow is followed by a size check, and functions that are not
// deterministic are replaced.

// The functions that the guard adds.
const (
	checkSizeFunction = "__sized"
	chargeFunction    = "__charge"
	digitsFunction    = "__digits"
	searchFunction    = "__search"
	subFunction       = "__subtract"
	addFunction       = "__add"
	mulFunction       = "__mul"
	indexFunction     = "__index"
	pathFunction      = "__path"
	growFunction      = "__grow"
	orderFunction     = "__order"
	transposeFunction = "__transposed"
)

// Functions that the definitions of extending call.
const (
	heldFunction  = "__held"
	matchFunction = "__match"
	cutFunction   = "__cut"
)

// prelude stands before each expression.
const prelude = `
def now: ` + nowVariable + `;
def localtime: gmtime;
def strflocaltime(f): strftime(f);
def env: error("an expression has no environment");
def halt: error("halt: use raise");
def halt_error: error("halt: use raise");
def halt_error(f): error("halt: use raise");
def add(f): reduce f as $__x (null; . + $__x);
def add: add(.[]);
def join($__s): if length == 0 then "" else
	reduce .[1:][] as $__x (.[0] | if . == null then "" elif type == "string" then . else tojson end;
	. + $__s + ($__x | if . == null then "" elif type == "string" then . else tojson end)) end;
.`

// extending replaces built-in functions that build their result in many steps, or by regular
// expressions: the interpreter's own bound neither the size nor the time, and hold every expression
// that they have compiled for as long as the workflow. The definitions check what they hold. They call
// only those of the same name, and of names within it.
const extending = `
def fromstream(f): foreach f as $__pv (null;
	if .e then null end | $__pv as [$__p, $__v] |
	if $__pv | length == 2 then
		setpath(["v"] + __path($__budget; $__p); $__v) | setpath(["e"]; $__p | length == 0)
	else
		setpath(["e"]; $__p | length == 1)
	end | __held($__budget);
	if .e then .v else empty end);
def pick(f): . as $__v | reduce path(f) as $__p (null;
	setpath(__path($__budget; $__p); $__v | getpath($__p)) | __held($__budget));
def test($re): __match($__budget; $re; null; true);
def test($re; $flags): __match($__budget; $re; $flags; true);
def match($re): __match($__budget; $re; null; false)[];
def match($re; $flags): __match($__budget; $re; $flags; false)[];
def capture($re): __match($__budget; $re; null; false)[] | .captures | _captures;
def capture($re; $flags): __match($__budget; $re; $flags; false)[] | .captures | _captures;
def scan($re; $flags): __match($__budget; $re; $flags + "g"; false)[] |
	if .captures == [] then .string else [.captures[].string] end;
def scan($re): scan($re; null);
def splits($re; $flags): __cut($__budget; $re; $flags + "g") | .[0][].before, .[1];
def splits($re): splits($re; null);
def split($re; $flags): __cut($__budget; $re; $flags + "g") | [.[0][].before, .[1]];
def sub($re; str; $flags): . as $__in | __cut($__budget; $re; $flags) as [$__cuts, $__rest] |
	(reduce $__cuts[] as {before: $__before, captures: $__captures} ([];
		reduce ($__captures | _captures | str) as $__s ({i: 0, r: .}; .r[.i] += $__before + $__s | .i += 1) |
		.r | __held($__budget)) | .[] + $__rest) // $__in;
def sub($re; str): sub($re; str; null);
def gsub($re; str; $flags): sub($re; str; $flags + "g");
def gsub($re; str): sub($re; str; "g");
.`

// extendingNames are the names that the definitions have, or that theirs contain: parsing extending
// takes longer than everything else about most expressions.
var extendingNames = []string{"fromstream", "pick", "test", "match", "capture", "scan", "split", "sub"}

// growing are functions whose result may be much larger than their input.
var growing = map[string]bool{
	"tojson": true, "tostring": true, "explode": true, "implode": true, "transpose": true, "flatten": true,
	"gsub": true, "sub": true, "splits": true, "split": true, "to_entries": true, "fromjson": true, "strftime": true,
	"ascii_downcase": true, "ascii_upcase": true, "combinations": true, "setpath": true, "group_by": true, "unique_by": true,
	"walk": true, "paths": true, "getpath": false, "match": true, "scan": true, "capture": true, "tojsonstream": true,
	"path": true, "tostream": true,
}

// expensive are built-in functions that process all of their input in one step.
var expensive = map[string]bool{
	"length": true, "keys": true, "keys_unsorted": true, "sort": true, "sort_by": true, "min": true, "max": true, "min_by": true,
	"max_by": true, "unique": true, "reverse": true, "tojson": true, "from_entries": true, "with_entries": true, "map_values": true,
	"del": true, "delpaths": true, "to_entries": true, "pick": true, "tostream": true, "ascii": true, "trim": true,
	"ltrim": true, "rtrim": true, "trimstr": true, "ltrimstr": true, "rtrimstr": true, "tonumber": true, "add": true, "join": true,
	"any": true, "all": true, "IN": true, "INDEX": true, "bsearch": true, "todate": true, "fromdate": true, "strptime": true, "has": true,
}

// cutting are functions whose result can be a part of their input that shares its memory.
var cutting = map[string]bool{
	"getpath": true, "paths": true, "pick": true, "split": true, "splits": true, "scan": true, "match": true, "capture": true,
	"sub": true, "gsub": true, "trim": true, "ltrim": true, "rtrim": true, "trimstr": true, "ltrimstr": true, "rtrimstr": true,
}

// searches are functions that search their input for their first argument.
var searches = map[string]bool{
	"contains": true, "inside": true, "index": true, "rindex": true, "indices": true, "test": true, "match": true, "capture": true,
	"scan": true, "split": true, "splits": true, "sub": true, "gsub": true, "startswith": true, "endswith": true, "in": true,
}

func guards() []gojq.CompilerOption {
	return []gojq.CompilerOption{
		gojq.WithFunction(checkSizeFunction, 1, 1, func(v any, args []any) any { return charged(args[0], checkSize(v), v) }),
		gojq.WithFunction(chargeFunction, 1, 1, func(v any, args []any) any { return charged(args[0], v, v, v, v, v) }),
		gojq.WithFunction(digitsFunction, 1, 1, func(v any, args []any) any { return charged(args[0], checkDigits(v), v) }),
		gojq.WithFunction(searchFunction, 2, 2, func(v any, args []any) any { return chargedProduct(args[0], v, v, args[1]) }),
		gojq.WithFunction(indexFunction, 2, 2, func(_ any, args []any) any { return checkIndex(args[0], args[1]) }),
		gojq.WithFunction(pathFunction, 2, 2, func(_ any, args []any) any { return checkPath(args[0], args[1]) }),
		gojq.WithFunction(growFunction, 1, 1, func(v any, args []any) any { return grown(args[0], v) }),
		gojq.WithFunction(orderFunction, 1, 1, func(_ any, args []any) any { return checkOrder(args[0]) }),
		gojq.WithFunction(transposeFunction, 1, 1, func(v any, args []any) any { return charged(args[0], checkTransposed(v), v) }),
		gojq.WithFunction(heldFunction, 1, 1, func(v any, args []any) any { return checkHeld(args[0], v) }),
		gojq.WithFunction(matchFunction, 4, 4, func(v any, args []any) any { return matches(args[0], v, args[1], args[2], args[3] == true) }),
		gojq.WithFunction(cutFunction, 3, 3, func(v any, args []any) any { return cuts(args[0], v, args[1], args[2]) }),
		gojq.WithFunction(addFunction, 3, 3, func(_ any, args []any) any { return charged(args[0], checkBoth(args[1:]), args[1], args[2]) }),
		gojq.WithFunction(mulFunction, 3, 3, func(_ any, args []any) any {
			return chargedRepetition(args[0], checkProduct(args[1:]), args[1], args[2])
		}),
		gojq.WithFunction(subFunction, 3, 3, func(_ any, args []any) any {
			return chargedProduct(args[0], []any{args[1], args[2]}, args[1], args[2])
		}),
	}
}

// guard returns the expression with its guards, and with the definitions of the prelude, and of
// extending, that its text names. It rejects expressions that could bypass them. It reports whether a
// small result can be a part of a large value, which it would keep in memory.
func guard(text string, q *gojq.Query) (guarded *gojq.Query, slicing bool, err error) {
	g := &guardRewriter{}
	head, err := definitionsIn(prelude, text)
	if err != nil {
		return nil, false, err
	}
	for _, def := range head {
		g.query(def.Body)
	}
	var extended []*gojq.FuncDef
	if slices.ContainsFunc(extendingNames, func(name string) bool { return strings.Contains(text, name) }) {
		if extended, err = definitionsIn(extending, text); err != nil {
			return nil, false, err
		}
	}
	if q.Meta != nil || len(q.Imports) > 0 {
		return nil, false, errors.New("an expression can import no modules")
	}
	g.checking = true
	g.query(q)
	if g.err != nil {
		return nil, false, g.err
	}
	q.FuncDefs = slices.Concat(head, extended, q.FuncDefs)
	return q, g.slicing, nil
}

// definitionsIn returns the definitions of functions that a text names.
func definitionsIn(source, text string) ([]*gojq.FuncDef, error) {
	q, err := gojq.Parse(source)
	if err != nil {
		return nil, fmt.Errorf("the guards of expressions: %w", err)
	}
	return slices.DeleteFunc(q.FuncDefs, func(def *gojq.FuncDef) bool { return !strings.Contains(text, def.Name) }), nil
}

type guardRewriter struct {
	checking bool
	slicing  bool // a result can be a part of an array or of a text
	err      error
}

func (g *guardRewriter) refuse(format string, args ...any) {
	if g.err == nil {
		g.err = fmt.Errorf(format, args...)
	}
}

func (g *guardRewriter) query(q *gojq.Query) {
	if q == nil {
		return
	}
	for _, def := range q.FuncDefs {
		if g.checking && strings.HasPrefix(def.Name, "_") {
			g.refuse("function %s: names that begin with \"_\" are reserved", def.Name)
		}
		g.query(def.Body)
	}
	for _, p := range q.Patterns {
		g.pattern(p)
	}
	g.query(q.Left)
	g.query(q.Right)
	g.term(q.Term)
	g.operator(q)
}

// operator adds the guards to an operator whose result can grow.
func (g *guardRewriter) operator(q *gojq.Query) {
	switch q.Op {
	case gojq.OpAdd:
		q.Left, q.Right = binary(addFunction, q, gojq.OpAdd)
		q.Op = gojq.OpPipe
	case gojq.OpMul:
		q.Left, q.Right = binary(mulFunction, q, gojq.OpMul)
		q.Op = gojq.OpPipe
	case gojq.OpSub:
		q.Left, q.Right = binary(subFunction, q, gojq.OpSub)
		q.Op = gojq.OpPipe
	case gojq.OpDiv:
		// A text that is divided is split.
		g.slicing = g.slicing || g.checking
		if !isNumber(q.Left) && !isNumber(q.Right) {
			left, right := binary(addFunction, q, gojq.OpDiv)
			split := &gojq.Query{Left: left, Right: right, Op: gojq.OpPipe}
			q.Left, q.Right, q.Op = paren(split), call(checkSizeFunction, call(budgetVariable)), gojq.OpPipe
		}
	case gojq.OpEq, gojq.OpNe, gojq.OpLt, gojq.OpLe, gojq.OpGt, gojq.OpGe:
		if !isLiteral(q.Left) && !isLiteral(q.Right) {
			q.Left, q.Right = binary(addFunction, q, q.Op)
			q.Op = gojq.OpPipe
		}
	case gojq.OpUpdateAdd:
		g.update(q, gojq.OpAdd)
	case gojq.OpUpdateMul:
		g.update(q, gojq.OpMul)
	case gojq.OpAssign, gojq.OpModify, gojq.OpUpdateSub, gojq.OpUpdateDiv, gojq.OpUpdateMod, gojq.OpUpdateAlt:
		inner := &gojq.Query{Left: checkedPaths(q.Left), Right: q.Right, Op: q.Op}
		q.Left, q.Right, q.Op = paren(inner), call(checkSizeFunction, call(budgetVariable)), gojq.OpPipe
	default:
	}
}

// checkedPaths rewrites the paths L that are assigned to, "getpath(path(L) | __grow)", unless they
// obviously make no long arrays.
func checkedPaths(q *gojq.Query) *gojq.Query {
	if isShortPath(q) {
		return q
	}
	return call("getpath", &gojq.Query{Left: call("path", q), Op: gojq.OpPipe, Right: call(growFunction, call(budgetVariable))})
}

// isShortPath reports whether a query is a path of names and iterations, or one path of names and
// numbers whose sum no value is too small for.
func isShortPath(q *gojq.Query) bool {
	t := q.Term
	if t == nil || len(q.FuncDefs) > 0 || t.Type != gojq.TermTypeIdentity && t.Type != gojq.TermTypeIndex {
		return false
	}
	numbers, many := isNumbered(t.Index), false
	for _, s := range t.SuffixList {
		many = many || s.Iter
		numbers += isNumbered(s.Index)
	}
	return numbers == 0 || !many && numbers <= maxValueSize/16/maxIndex
}

// isNumbered returns 1 for a plain number in brackets, more than any path may have for everything
// else there, and 0 for a name.
func isNumbered(i *gojq.Index) int {
	switch {
	case i == nil || i.Start == nil && i.End == nil:
		return 0
	case i.Start != nil && !i.IsSlice && plainNumber(i.Start):
		return 1
	}
	return maxIndex
}

// isNumber reports whether a query is a number.
func isNumber(q *gojq.Query) bool {
	return q.Term != nil && q.Term.Type == gojq.TermTypeNumber && len(q.Term.SuffixList) == 0
}

// binary rewrites "L op R" to "CHECK(L; R) | .[0] op .[1]", where CHECK returns both.
func binary(check string, q *gojq.Query, op gojq.Operator) (left, right *gojq.Query) {
	at := func(i string) *gojq.Query {
		number := &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeNumber, Number: i}}
		return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIndex, Index: &gojq.Index{Start: number}}}
	}
	return call(check, call(budgetVariable), q.Left, q.Right), &gojq.Query{Left: at("0"), Right: at("1"), Op: op}
}

// update rewrites "L op= R" to the equivalent "R as $__u | L |= (. op $__u)".
func (g *guardRewriter) update(q *gojq.Query, op gojq.Operator) {
	const name = "$__u"
	sum := &gojq.Query{Left: identity(), Right: call(name), Op: op}
	g.operator(sum)
	modify := &gojq.Query{Left: q.Left, Right: paren(sum), Op: gojq.OpModify}
	g.operator(modify)
	q.Left, q.Patterns, q.Right, q.Op = paren(q.Right), []*gojq.Pattern{{Name: name}}, modify, gojq.OpPipe
}

func identity() *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeIdentity}}
}

func paren(q *gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeQuery, Query: q}}
}

func call(name string, args ...*gojq.Query) *gojq.Query {
	return &gojq.Query{Term: &gojq.Term{Type: gojq.TermTypeFunc, Func: &gojq.Func{Name: name, Args: args}}}
}

func (g *guardRewriter) term(t *gojq.Term) {
	if t == nil {
		return
	}
	g.index(t.Index)
	for _, s := range t.SuffixList {
		g.index(s.Index)
	}
	g.function(t.Func)
	g.text(t.Str)
	g.query(t.Query)
	g.control(t)
	if t.Unary != nil {
		g.term(t.Unary.Term)
	}
	if t.Array != nil {
		g.query(t.Array.Query)
	}
	if t.Object != nil {
		for _, kv := range t.Object.KeyVals {
			g.text(kv.KeyString)
			g.query(kv.KeyQuery)
			g.query(kv.Val)
		}
	}
	if t.Type == gojq.TermTypeFunc && (expensive[t.Func.Name] || searches[t.Func.Name]) {
		wrapInCharge(t)
	} else if grows(t) {
		wrapInSizeCheck(t)
	}
}

// isLiteral reports whether a query is a number, a text, or a constant name.
func isLiteral(q *gojq.Query) bool {
	t := q.Term
	if t == nil || len(t.SuffixList) > 0 {
		return false
	}
	switch t.Type {
	case gojq.TermTypeNumber, gojq.TermTypeNull, gojq.TermTypeTrue, gojq.TermTypeFalse:
		return true
	case gojq.TermTypeString:
		return t.Str != nil && len(t.Str.Queries) == 0
	default:
		return false
	}
}

// wrapInCharge rewrites a call "f(X; Y)" to "(__charge | f(X; Y))", or for a search to
// "(X as $__x | __search($__x) | f($__x; Y))", and checks the size of growing results.
func wrapInCharge(t *gojq.Term) {
	const name = "$__x"
	inner := *t
	inner.SuffixList = nil
	q := &gojq.Query{Term: &inner}
	if growing[t.Func.Name] {
		q = &gojq.Query{Left: q, Op: gojq.OpPipe, Right: call(checkSizeFunction, call(budgetVariable))}
	}
	if searches[t.Func.Name] && len(t.Func.Args) > 0 {
		called := *t.Func
		called.Args = append([]*gojq.Query{call(name)}, called.Args[1:]...)
		inner.Func = &called
		q = &gojq.Query{Left: call(searchFunction, call(budgetVariable), call(name)), Op: gojq.OpPipe, Right: q}
		q = &gojq.Query{Left: paren(t.Func.Args[0]), Patterns: []*gojq.Pattern{{Name: name}}, Op: gojq.OpPipe, Right: q}
	} else {
		charge := chargeFunction
		if t.Func.Name == "tonumber" {
			charge = digitsFunction
		}
		q = &gojq.Query{Left: call(charge, call(budgetVariable)), Op: gojq.OpPipe, Right: q}
	}
	*t = gojq.Term{Type: gojq.TermTypeQuery, Query: q, SuffixList: t.SuffixList}
}

func (g *guardRewriter) control(t *gojq.Term) {
	if t.If != nil {
		g.query(t.If.Cond)
		g.query(t.If.Then)
		for _, e := range t.If.Elif {
			g.query(e.Cond)
			g.query(e.Then)
		}
		g.query(t.If.Else)
	}
	if t.Try != nil {
		g.query(t.Try.Body)
		g.query(t.Try.Catch)
	}
	if r := t.Reduce; r != nil {
		g.query(r.Query)
		g.pattern(r.Pattern)
		g.query(r.Start)
		g.query(r.Update)
	}
	if f := t.Foreach; f != nil {
		g.query(f.Query)
		g.pattern(f.Pattern)
		g.query(f.Start)
		g.query(f.Update)
		g.query(f.Extract)
	}
	if t.Label != nil {
		g.query(t.Label.Body)
	}
}

func (g *guardRewriter) pattern(p *gojq.Pattern) {
	if p == nil {
		return
	}
	if g.checking && strings.HasPrefix(p.Name, "$__") {
		g.refuse("variable %s: names that begin with \"_\" are reserved", p.Name)
	}
	for _, e := range p.Array {
		g.pattern(e)
	}
	for _, o := range p.Object {
		g.text(o.KeyString)
		g.query(o.KeyQuery)
		g.pattern(o.Val)
	}
}

func (g *guardRewriter) text(s *gojq.String) {
	if s == nil {
		return
	}
	for _, q := range s.Queries {
		g.query(q)
	}
}

// index guards the numbers in brackets: an array is as long as its last index.
func (g *guardRewriter) index(i *gojq.Index) {
	if i == nil {
		return
	}
	g.text(i.Str)
	g.slicing = g.slicing || g.checking && (i.IsSlice || i.Start != nil && !isLiteral(i.Start)) // an index may be {start, end}
	for _, q := range []**gojq.Query{&i.Start, &i.End} {
		if *q != nil && !plainNumber(*q) {
			g.query(*q)
			*q = call(indexFunction, call(budgetVariable), *q)
		}
	}
}

// plainNumber reports whether the query is a number that needs no guard.
func plainNumber(q *gojq.Query) bool {
	if q.Term == nil || q.Term.Type != gojq.TermTypeNumber || len(q.Term.SuffixList) > 0 {
		return false
	}
	n, err := strconv.Atoi(q.Term.Number)
	return err == nil && n < maxIndex
}

func (g *guardRewriter) function(f *gojq.Func) {
	if f == nil {
		return
	}
	for _, a := range f.Args {
		g.query(a)
	}
	if g.checking && (strings.HasPrefix(f.Name, "_") || strings.HasPrefix(f.Name, "$__") && f.Name != "$__loc__") {
		g.refuse("function %s: names that begin with \"_\" are reserved", f.Name)
	}
	g.slicing = g.slicing || g.checking && cutting[f.Name]
	switch {
	case !g.checking:
	case f.Name == "$ENV":
		g.refuse("$ENV: an expression has no environment")
	case f.Name == "input_filename" || f.Name == "$__prog_args" || f.Name == "modulemeta" || f.Name == "get_search_list":
		g.refuse("function %s: an expression reads no files", f.Name)
	case (f.Name == "setpath" || f.Name == "getpath") && len(f.Args) > 0:
		f.Args[0] = call(pathFunction, call(budgetVariable), f.Args[0])
	case (f.Name == "jn" || f.Name == "yn") && len(f.Args) > 0:
		f.Args[0] = call(orderFunction, f.Args[0])
	}
}

// grows reports whether the term's value may be larger than those of its operands.
func grows(t *gojq.Term) bool {
	switch t.Type {
	case gojq.TermTypeArray:
		return t.Array.Query != nil
	case gojq.TermTypeObject:
		return len(t.Object.KeyVals) > 0
	case gojq.TermTypeFormat:
		return true
	case gojq.TermTypeString:
		return len(t.Str.Queries) > 0
	case gojq.TermTypeFunc:
		return growing[t.Func.Name]
	default:
		return false
	}
}

// wrapInSizeCheck rewrites the term T to "(T | __sized)", followed by its suffixes. The
// input of a growing function is measured as well, since it may share its parts.
func wrapInSizeCheck(t *gojq.Term) {
	inner := *t
	inner.SuffixList = nil
	var q *gojq.Query
	if t.Type == gojq.TermTypeFunc || t.Type == gojq.TermTypeFormat {
		before := checkSizeFunction
		if t.Type == gojq.TermTypeFunc && t.Func.Name == "transpose" {
			before = transposeFunction
		}
		after := &gojq.Query{Left: &gojq.Query{Term: &inner}, Op: gojq.OpPipe, Right: call(checkSizeFunction, call(budgetVariable))}
		q = &gojq.Query{Left: call(before, call(budgetVariable)), Op: gojq.OpPipe, Right: after}
	} else {
		q = &gojq.Query{Left: &gojq.Query{Term: &inner}, Op: gojq.OpPipe, Right: call(checkSizeFunction, call(budgetVariable))}
	}
	*t = gojq.Term{Type: gojq.TermTypeQuery, Query: q, SuffixList: t.SuffixList}
}
