package policy

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/ext"
	"go.yaml.in/yaml/v3"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard/internal/spell"
)

// costLimit bounds the cost of an evaluation in CEL's units: about one per visited node.
const costLimit = 100_000

// inputs are the request types of the methods in the descriptors, numbered from 1.
type inputs struct {
	methods map[string]int
	known   map[string]protoreflect.MethodDescriptor
	list    []protoreflect.MessageDescriptor
}

func newInputs(d Descriptors) inputs {
	in := inputs{methods: map[string]int{}, known: map[string]protoreflect.MethodDescriptor{}}
	if d == nil {
		return in
	}
	numbers := map[protoreflect.FullName]int{}
	d.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			in.add(f.Services().Get(i), numbers)
		}
		return true
	})
	return in
}

func (in *inputs) add(s protoreflect.ServiceDescriptor, numbers map[protoreflect.FullName]int) {
	for i := range s.Methods().Len() {
		m := s.Methods().Get(i)
		name := m.Input().FullName()
		if numbers[name] == 0 {
			in.list = append(in.list, m.Input())
			numbers[name] = len(in.list)
		}
		path := "/" + string(s.FullName()) + "/" + string(m.Name())
		in.methods[path], in.known[path] = numbers[name], m
	}
}

// of returns the number of the method's request type; 0 if it is not known.
func (in *inputs) of(method string) int { return in.methods[method] }

func (in *inputs) descriptor(i int) protoreflect.MessageDescriptor {
	if i == 0 {
		return nil
	}
	return in.list[i-1]
}

// method returns the first method, in alphabetical order, that s selects and that has this request
// type.
func (in *inputs) method(s *selector, input int) string {
	for _, path := range in.selectedMethods(s) {
		if in.methods[path] == input {
			return path
		}
	}
	return ""
}

// selected returns the numbers of the request types of the known methods that s selects, in order.
func (in *inputs) selected(s *selector) []int {
	var numbers []int
	for _, path := range in.selectedMethods(s) {
		numbers = append(numbers, in.methods[path])
	}
	slices.Sort(numbers)
	return slices.Compact(numbers)
}

// environments are CEL environments, by the number of the request type.
type environments struct {
	inputs   *inputs
	response bool
	made     map[int]*cel.Env
}

func (e *environments) of(input int) (*cel.Env, error) {
	if env := e.made[input]; env != nil {
		return env, nil
	}
	request, err := requestOf(e.inputs.descriptor(input))
	if err != nil {
		return nil, fmt.Errorf("types of expressions: %w", err)
	}
	env, err := cel.NewEnv(append(variablesOf(e.response), request...)...)
	if err != nil {
		return nil, fmt.Errorf("environment of expressions: %w", err)
	}
	e.made[input] = env
	return env, nil
}

func variablesOf(response bool) []cel.EnvOption {
	pairs := cel.MapType(cel.StringType, cel.StringType)
	options := []cel.EnvOption{
		cel.OptionalTypes(), ext.Strings(), cel.CrossTypeNumericComparisons(true), cel.DefaultUTCTimeZone(true),
		cel.ParserExpressionSizeLimit(16 << 10), cel.ParserRecursionLimit(100),
		cel.Variable("metadata", pairs), cel.Variable("tenant", cel.StringType), cel.Variable("peer", cel.StringType),
		cel.Variable("caller_node", cel.StringType), cel.Variable("caller_kind", cel.StringType), cel.Variable("caller_name", cel.StringType),
		cel.Variable("service", cel.StringType), cel.Variable("method", cel.StringType), cel.Variable("attempt", cel.IntType),
		cel.Variable("now", cel.TimestampType), cel.Variable("deadline", cel.TimestampType),
	}
	if response {
		options = append(options, cel.Variable("response", pairs))
	}
	return options
}

func variableNames(response bool) []string {
	names := []string{"request", "metadata", "tenant", "peer", "caller_node", "caller_kind", "caller_name", "service", "method", "attempt", "now", "deadline"}
	if response {
		names = append(names, "response")
	}
	return names
}

// compiler compiles the expressions of one policy at a time.
type compiler struct {
	reader
	inputs       *inputs
	currentEnvs  environments // for expressions on calls; inResponse exchanges it with responseEnvs
	responseEnvs environments // for expressions on responses

	applies  *selector // selects the policy's calls
	selected []int     // the request types of the policy's calls
	request  bool      // set by an expression that reads the request
	// selections are the fields that the policy's expressions read, by the number of the request
	// type.
	selections map[int]selection
}

// expectedType is the type that an expression must have; nil accepts any.
type expectedType struct {
	kind *cel.Type
	name string
}

// compile compiles a scalar to an expression, which is checked for every request type that it may
// read.
func (c *compiler) compile(n *yaml.Node, want expectedType) (*expression, error) {
	if n.Kind != yaml.ScalarNode || n.Value == "" {
		return nil, c.src.errorf(n, "an expression is text, as in: when: tenant == %q", "gold")
	}
	reads, err := c.reads(n)
	if err != nil {
		return nil, err
	}
	e := &expression{text: n.Value, request: reads}
	if !reads || len(c.selected) == 0 {
		if e.plain, err = c.program(n, 0, want); err != nil {
			return nil, err
		}
		e.literal, err = c.literal(n)
		return e, err
	}
	c.request = true
	e.typed = map[int]cel.Program{}
	for _, input := range c.selected {
		if e.typed[input], err = c.program(n, input, want); err != nil {
			return nil, err
		}
		if err := c.selects(n, input); err != nil {
			return nil, err
		}
	}
	return e, nil
}

// reads reports whether the expression reads the request.
func (c *compiler) reads(n *yaml.Node) (bool, error) {
	env, err := c.currentEnvs.of(0)
	if err != nil {
		return false, err
	}
	tree, issues := env.Parse(n.Value)
	if issues.Err() != nil {
		return false, c.celError(n, 0, nil, issues)
	}
	reads := false
	ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		reads = reads || e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == "request"
	}))
	if reads {
		c.request = true
	}
	return reads, nil
}

// selects adds the fields of a request type that an expression reads to the policy's selections.
func (c *compiler) selects(n *yaml.Node, input int) error {
	env, err := c.currentEnvs.of(input)
	if err != nil {
		return err
	}
	tree, issues := env.Parse(n.Value)
	if issues.Err() != nil {
		return c.celError(n, input, nil, issues)
	}
	s := selectionOf(tree.NativeRep().Expr(), c.inputs.descriptor(input))
	if before, ok := c.selections[input]; ok {
		s = s.union(before)
	}
	c.selections[input] = s
	return nil
}

// literal returns the value of an expression that is a literal, and nil for other expressions.
func (c *compiler) literal(n *yaml.Node) (ref.Val, error) {
	env, err := c.currentEnvs.of(0)
	if err != nil {
		return nil, err
	}
	tree, issues := env.Parse(n.Value)
	if issues.Err() != nil {
		return nil, c.celError(n, 0, nil, issues)
	}
	if e := tree.NativeRep().Expr(); e.Kind() == ast.LiteralKind {
		return e.AsLiteral(), nil
	}
	return nil, nil
}

func (c *compiler) program(n *yaml.Node, input int, want expectedType) (cel.Program, error) {
	env, err := c.currentEnvs.of(input)
	if err != nil {
		return nil, err
	}
	parsed, issues := env.Parse(n.Value)
	if issues.Err() != nil {
		return nil, c.celError(n, input, nil, issues)
	}
	tree, issues := env.Check(parsed)
	if issues.Err() != nil {
		return nil, c.celError(n, input, parsed, issues)
	}
	if got := tree.OutputType(); want.kind != nil && got.Kind() != cel.DynKind && !want.kind.IsAssignableType(got) {
		return nil, c.src.errorf(n, "%s must be %s, and this is %s%s", want.name, article(want.kind), article(got), c.requestNote(input))
	}
	program, err := env.Program(tree, programOptions(env, tree)...)
	if err != nil {
		return nil, c.src.errorf(n, "%v", err)
	}
	return program, nil
}

// programOptions enforces costLimit at run time, unless static cost estimation proves that the
// expression cannot reach it.
func programOptions(env *cel.Env, tree *cel.Ast) []cel.ProgramOption {
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if cost, err := env.EstimateCost(tree, inputSizes{}); err != nil || cost.Max > costLimit {
		options = append(options, cel.CostLimit(costLimit))
	}
	return options
}

// inputSizes are the upper bounds of the sizes of an expression's inputs.
type inputSizes struct{}

// EstimateSize implements checker.CostEstimator.
func (inputSizes) EstimateSize(n checker.AstNode) *checker.SizeEstimate {
	path := n.Path()
	if len(path) == 0 {
		return nil
	}
	most := uint64(math.MaxUint32)
	switch path[0] {
	case "tenant", "peer", "service", "method":
		most = 4 << 10
	case "metadata", "response":
		most = 64 << 10
	}
	return &checker.SizeEstimate{Min: 0, Max: most}
}

// EstimateCallCost implements checker.CostEstimator.
func (inputSizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

func article(t *cel.Type) string {
	name := t.String()
	if strings.ContainsRune("aeiou", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// requestNote names the request type to which an error applies.
func (c *compiler) requestNote(input int) string {
	if d := c.inputs.descriptor(input); d != nil {
		return fmt.Sprintf(" (where request is a %s)", d.FullName())
	}
	return ""
}

// celError converts the first of CEL's errors, with its position in the file.
func (c *compiler) celError(n *yaml.Node, input int, tree *cel.Ast, issues *cel.Issues) error {
	first := issues.Errors()[0]
	at := offset(n.Value, first)
	if strings.HasPrefix(first.Message, "undefined field") {
		at++ // the dot
	}
	line, column := c.src.inside(n, at)
	return &Error{File: c.src.file, Line: line, Column: column, Text: c.explain(first, input, tree)}
}

// offset returns the number of characters before an error.
func offset(text string, e *common.Error) int {
	passed := 0
	lines := strings.SplitAfter(text, "\n")
	for i := 0; i < e.Location.Line()-1 && i < len(lines); i++ {
		passed += len([]rune(lines[i]))
	}
	return passed + max(0, e.Location.Column())
}

// explain adds the remedy to a CEL error.
func (c *compiler) explain(e *common.Error, input int, tree *cel.Ast) string {
	message := strings.ReplaceAll(e.Message, " (in container '')", "")
	if m := regexp.MustCompile(`^undeclared reference to '\.?([^']*)'$`).FindStringSubmatch(message); m != nil {
		return fmt.Sprintf("nothing is called %q here: %s", m[1], spell.Hint(m[1], variableNames(c.currentEnvs.response)))
	}
	if m := regexp.MustCompile(`^undefined field '([^']*)'$`).FindStringSubmatch(message); m != nil {
		return c.noField(m[1], input, tree, e.ExprID)
	}
	if m := regexp.MustCompile(`^found no matching overload for '([^']*)' applied to '([^']*)'$`).FindStringSubmatch(message); m != nil {
		return c.noOverload(m[1], m[2]) + c.requestNote(input)
	}
	return message + c.requestNote(input)
}

// noOverload lists the operand types of an operator or a function.
func (c *compiler) noOverload(function, got string) string {
	name := function
	if symbol, ok := operators.FindReverse(function); ok && symbol != "" {
		name = symbol
	}
	var takes []string
	if env := c.currentEnvs.made[0]; env != nil && env.Functions()[function] != nil {
		for _, o := range env.Functions()[function].OverloadDecls() {
			takes = append(takes, signature(o.ArgTypes()))
		}
	}
	if len(takes) > 12 {
		takes = append(takes[:12], "...")
	}
	return fmt.Sprintf("%s does not take %s: it takes %s", name, got, strings.Join(takes, ", "))
}

func signature(types []*cel.Type) string {
	var names []string
	for _, t := range types {
		names = append(names, strings.Trim(t.String(), "<>"))
	}
	return "(" + strings.Join(names, ", ") + ")"
}

// noField lists the fields of a message that has no field of this name.
func (c *compiler) noField(name string, input int, tree *cel.Ast, id int64) string {
	d := messageOf(c.inputs.descriptor(input), operand(tree, id))
	if d == nil {
		return fmt.Sprintf("no field %q", name)
	}
	text := fmt.Sprintf("%s has no field %q: %s", d.FullName(), name, spell.Hint(name, fieldNames(d)))
	if len(c.selected) > 1 {
		text += fmt.Sprintf(". It is the request of %s: services and methods say to which calls a policy applies", c.inputs.method(c.applies, input))
	}
	return text
}

// operand returns the operand of the select expression with that ID.
func operand(tree *cel.Ast, id int64) ast.Expr {
	var found ast.Expr
	ast.PostOrderVisit(tree.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.ID() == id && e.Kind() == ast.SelectKind {
			found = e.AsSelect().Operand()
		}
	}))
	return found
}

// messageOf returns the message type of a path that begins with request; nil if e is another
// expression, or not a message.
func messageOf(request protoreflect.MessageDescriptor, e ast.Expr) protoreflect.MessageDescriptor {
	switch {
	case e == nil || request == nil:
		return nil
	case e.Kind() == ast.IdentKind && e.AsIdent() == "request":
		return request
	case e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.Index:
		return messageOf(request, e.AsCall().Args()[0])
	case e.Kind() != ast.SelectKind:
		return nil
	}
	d := messageOf(request, e.AsSelect().Operand())
	if d == nil {
		return nil
	}
	f := d.Fields().ByName(protoreflect.Name(e.AsSelect().FieldName()))
	switch {
	case f == nil:
		return nil
	case f.IsMap():
		return f.MapValue().Message()
	}
	return f.Message()
}

func fieldNames(d protoreflect.MessageDescriptor) []string {
	var names []string
	for i := range d.Fields().Len() {
		names = append(names, string(d.Fields().Get(i).Name()))
	}
	return names
}

func newEnvironments(in *inputs, response bool) environments {
	return environments{inputs: in, response: response, made: map[int]*cel.Env{}}
}

func boolType() *cel.Type   { return cel.BoolType }
func stringType() *cel.Type { return cel.StringType }

// celType returns the type that an expression for a field must have; nil for fields that
// cannot be set.
func celType(f protoreflect.FieldDescriptor) *cel.Type {
	switch f.Kind() {
	case protoreflect.BoolKind:
		return cel.BoolType
	case protoreflect.StringKind:
		return cel.StringType
	case protoreflect.BytesKind:
		return cel.BytesType
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return cel.DoubleType
	case protoreflect.Uint32Kind, protoreflect.Uint64Kind, protoreflect.Fixed32Kind, protoreflect.Fixed64Kind:
		return cel.UintType
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return nil
	default:
		return cel.IntType
	}
}
