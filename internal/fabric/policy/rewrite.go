package policy

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/outboard-run/outboard/internal/spell"
)

// rewriteRules change calls. Removing comes first, then setting, then appending.
type rewriteRules struct {
	metadata, header, trailer changes
	request                   []fieldChange
	readsRequest              bool // the response's changes read the request
}

// changes are the operations on a map of metadata.
type changes struct {
	remove      []string
	set, append []valueOf
}

type valueOf struct {
	key  string
	expr *expression
}

// A fieldChange sets or clears a field of the request.
type fieldChange struct {
	path []protoreflect.Name
	expr *expression // nil: clear the field
}

type rewriteStep struct {
	*rewriteRules
	policy *policy
}

// A responder rewrites the metadata of responses.
type responder struct {
	policy *policy
	step   *rewriteStep
}

func (r *rewriteRules) bind(p *policy, _ step, _ time.Time) step { return &rewriteStep{r, p} }

func (c *changes) some() bool { return len(c.remove)+len(c.set)+len(c.append) > 0 }

func (s *rewriteStep) responds() bool { return s.header.some() || s.trailer.some() }

func (s *rewriteStep) apply(x *Exchange) error {
	if s.readsRequest {
		if _, err := x.message(); err != nil {
			return &evaluationError{err}
		}
	}
	// All values are computed before the first change: expressions see the call as it reached this
	// policy.
	var array [4]string
	values, err := s.metadata.values(x, array[:0])
	if err != nil {
		return &evaluationError{err}
	}
	fields, err := s.fields(x)
	if err != nil {
		return &evaluationError{err}
	}
	// The change that can fail comes first: a call is rewritten as a whole, or not at all.
	if err := x.set(s.request, fields); err != nil {
		return &evaluationError{err}
	}
	if s.metadata.some() {
		s.metadata.apply(x.ownMetadata().Metadata, values, x.owned.value)
	}
	if s.responds() {
		x.Plan.Rewrites = true
		x.responseSteps = append(x.responseSteps, s)
	}
	s.policy.recordAction(x)
	return nil
}

var errPrintable = status.Error(codes.InvalidArgument, "metadata has printable ASCII only, unless its key ends in -bin")

// values computes the values to set, then the values to append, and appends them to values.
func (c *changes) values(x *Exchange, values []string) ([]string, error) {
	for _, list := range [...][]valueOf{c.set, c.append} {
		for i := range list {
			s, err := list[i].value(x)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", list[i].key, err)
			}
			values = append(values, s)
		}
	}
	return values, nil
}

func (v *valueOf) value(x *Exchange) (string, error) {
	s, err := v.expr.string(x)
	if err == nil && !printable(s) && !strings.HasSuffix(v.key, "-bin") {
		err = errPrintable
	}
	return s, err
}

// apply changes md. one returns the list of values of a key that has a single value.
func (c *changes) apply(md metadata.MD, values []string, one func(string) []string) {
	for _, key := range c.remove {
		delete(md, key)
	}
	for i, v := range c.set {
		md[v.key] = one(values[i])
	}
	for i, v := range c.append {
		md[v.key] = append(slices.Clip(md[v.key]), values[len(c.set)+i])
	}
}

func (s *rewriteStep) fields(x *Exchange) ([]ref.Val, error) {
	values := make([]ref.Val, len(s.request))
	for i, f := range s.request {
		if f.expr == nil {
			continue
		}
		v, err := f.expr.eval(x)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.path[len(f.path)-1], err)
		}
		values[i] = v
	}
	return values, nil
}

// set changes a copy of the request, since other users may share the original.
func (x *Exchange) set(changes []fieldChange, values []ref.Val) error {
	if len(changes) == 0 {
		return nil
	}
	m, err := x.message()
	if err != nil {
		return err
	}
	m = proto.Clone(m.Interface()).ProtoReflect()
	for i, c := range changes {
		if err := c.apply(m, values[i]); err != nil {
			return status.Errorf(codes.InvalidArgument, "%v", err)
		}
	}
	x.request.value, x.vars.request, x.changed = m, nil, true
	return nil
}

func (c *fieldChange) apply(m protoreflect.Message, v ref.Val) error {
	for _, name := range c.path[:len(c.path)-1] {
		f := m.Descriptor().Fields().ByName(name)
		if v == nil && !m.Has(f) {
			return nil
		}
		m = m.Mutable(f).Message()
	}
	f := m.Descriptor().Fields().ByName(c.path[len(c.path)-1])
	if v == nil {
		m.Clear(f)
		return nil
	}
	value, err := toField(f, v)
	if err != nil {
		return err
	}
	m.Set(f, value)
	return nil
}

// encode puts the changed request into the plan.
func (x *Exchange) encode() error {
	if !x.changed {
		return nil
	}
	data, err := proto.MarshalOptions{}.Marshal(x.request.value.Interface())
	if err != nil {
		return status.Errorf(codes.Internal, "policy: encode the request: %v", err)
	}
	if data == nil {
		data = []byte{}
	}
	x.Plan.Payload, x.changed = data, false
	return nil
}

// toField converts a CEL value to the value of a field.
func toField(f protoreflect.FieldDescriptor, v ref.Val) (protoreflect.Value, error) {
	none := protoreflect.Value{}
	switch v := v.(type) {
	case types.Bool:
		if f.Kind() == protoreflect.BoolKind {
			return protoreflect.ValueOfBool(bool(v)), nil
		}
	case types.String:
		if f.Kind() == protoreflect.StringKind {
			return protoreflect.ValueOfString(string(v)), nil
		}
	case types.Bytes:
		if f.Kind() == protoreflect.BytesKind {
			return protoreflect.ValueOfBytes([]byte(v)), nil
		}
	case types.Int:
		return toInteger(f, int64(v))
	case types.Uint:
		return toUnsigned(f, uint64(v))
	case types.Double:
		return toFloat(f, float64(v))
	}
	return none, fmt.Errorf("field %s is a %s, and the value a %s", f.Name(), f.Kind(), v.Type().TypeName())
}

func toInteger(f protoreflect.FieldDescriptor, v int64) (protoreflect.Value, error) {
	narrow := v >= math.MinInt32 && v <= math.MaxInt32
	switch f.Kind() {
	case protoreflect.Int64Kind, protoreflect.Sint64Kind, protoreflect.Sfixed64Kind:
		return protoreflect.ValueOfInt64(v), nil
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Sfixed32Kind:
		if narrow {
			return protoreflect.ValueOfInt32(int32(v)), nil
		}
	case protoreflect.EnumKind:
		if narrow {
			return protoreflect.ValueOfEnum(protoreflect.EnumNumber(v)), nil
		}
	default:
	}
	return protoreflect.Value{}, fmt.Errorf("field %s is a %s, and cannot be %d", f.Name(), f.Kind(), v)
}

func toUnsigned(f protoreflect.FieldDescriptor, v uint64) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(v), nil
	case protoreflect.Uint32Kind, protoreflect.Fixed32Kind:
		if v <= math.MaxUint32 {
			return protoreflect.ValueOfUint32(uint32(v)), nil
		}
	default:
	}
	return protoreflect.Value{}, fmt.Errorf("field %s is a %s, and cannot be %d", f.Name(), f.Kind(), v)
}

func toFloat(f protoreflect.FieldDescriptor, v float64) (protoreflect.Value, error) {
	switch f.Kind() {
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(v), nil
	case protoreflect.FloatKind:
		return protoreflect.ValueOfFloat32(float32(v)), nil
	default:
		return protoreflect.Value{}, fmt.Errorf("field %s is a %s, and cannot be %v", f.Name(), f.Kind(), v)
	}
}

// Response applies the rewrites of the call's policies to a response's metadata. header or trailer
// is nil if it is not known yet. A policy whose rewrite fails leaves the metadata as it is or
// rejects the response, according to its failure mode.
func (c *Chain) Response(x *Exchange, header, trailer metadata.MD) (metadata.MD, metadata.MD, error) {
	for _, s := range x.responseSteps {
		var err error
		if header, err = s.answer(x, &s.header, header); err != nil {
			return nil, nil, err
		}
		if trailer, err = s.answer(x, &s.trailer, trailer); err != nil {
			return nil, nil, err
		}
	}
	return header, trailer, nil
}

func (s *rewriteStep) answer(x *Exchange, c *changes, md metadata.MD) (metadata.MD, error) {
	if !c.some() || md == nil {
		return md, nil
	}
	x.vars.response = md
	values, err := c.values(x, nil)
	x.vars.response = nil
	if err != nil {
		return md, s.policy.fail(x, err)
	}
	md = maps.Clone(md) // values are replaced, not changed
	c.apply(md, values, func(s string) []string { return []string{s} })
	return md, nil
}

func (p *parser) rewrite(n *yaml.Node) (rules, error) {
	r := &rewriteRules{}
	rp := &rewriteParser{&p.compiler, r}
	m := members{
		"metadata": rp.changes(&r.metadata), "request": rp.fieldChanges,
		"header":  func(n *yaml.Node) error { return rp.inResponse(&r.header, n) },
		"trailer": func(n *yaml.Node) error { return rp.inResponse(&r.trailer, n) },
	}
	if err := p.mapping(n, "rewrite", m); err != nil {
		return nil, err
	}
	there := r.metadata.some() || r.header.some() || r.trailer.some() || len(r.request) > 0
	return r, p.require(n, there, "what to change", "rewrite: {metadata: {set: {x-tenant: tenant}}}")
}

// rewriteParser parses the rules of one rewrite policy.
type rewriteParser struct {
	*compiler
	rules *rewriteRules
}

// inResponse parses changes whose expressions may also read response.
func (p *rewriteParser) inResponse(to *changes, n *yaml.Node) error {
	p.currentEnvs, p.responseEnvs = p.responseEnvs, p.currentEnvs
	defer func() { p.currentEnvs, p.responseEnvs = p.responseEnvs, p.currentEnvs }()
	if err := p.changes(to)(n); err != nil {
		return err
	}
	for _, v := range slices.Concat(to.set, to.append) {
		p.rules.readsRequest = p.rules.readsRequest || v.expr.request
	}
	return nil
}

func (p *rewriteParser) changes(to *changes) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		return p.mapping(n, "a change of metadata", members{
			"set":    func(n *yaml.Node) error { return p.values(&to.set, n) },
			"append": func(n *yaml.Node) error { return p.values(&to.append, n) },
			"remove": p.list(func(n *yaml.Node) error {
				to.remove = append(to.remove, n.Value)
				return p.metadataKey(n)
			}),
		})
	}
}

func (p *rewriteParser) values(to *[]valueOf, n *yaml.Node) error {
	return p.pairs(n, "keys and expressions", func(key, value *yaml.Node) error {
		if err := p.metadataKey(key); err != nil {
			return err
		}
		e, err := p.compile(value, expectedType{stringType(), key.Value})
		*to = append(*to, valueOf{key.Value, e})
		return err
	})
}

// pairs parses a mapping whose keys the user chooses.
func (y *reader) pairs(n *yaml.Node, subject string, f func(key, value *yaml.Node) error) error {
	if n.Kind != yaml.MappingNode {
		return y.src.errorf(n, "this is a mapping of %s", subject)
	}
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		if seen[key.Value] {
			return y.src.errorf(key, "%s is here twice", key.Value)
		}
		seen[key.Value] = true
		if err := f(key, n.Content[i+1]); err != nil {
			return err
		}
	}
	return nil
}

// metadataKey refuses invalid keys of metadata, and the keys that gRPC reserves.
func (y *reader) metadataKey(n *yaml.Node) error {
	if err := y.scalar(n, "a key of metadata"); err != nil {
		return err
	}
	if wrong := wrongKey(n.Value); wrong != "" {
		return y.src.errorf(n, "%s", wrong)
	}
	return nil
}

// wrongKey returns why a key of metadata can't be changed, or "" if it can.
func wrongKey(key string) string {
	if key == "" || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" {
		return fmt.Sprintf("%q is no key of metadata: these have lower-case letters, digits, -, _ and .", key)
	}
	if strings.HasPrefix(key, "grpc-") || key == "content-type" || key == "te" || key == "user-agent" {
		return key + " is gRPC's own: it cannot be changed"
	}
	return ""
}

func (p *rewriteParser) fieldChanges(n *yaml.Node) error {
	p.request = true
	if len(p.selected) == 0 {
		return p.src.errorf(n, "no service is known that this policy applies to: fields can be set where the descriptor is known")
	}
	set := func(n *yaml.Node) error {
		return p.pairs(n, "fields and expressions", p.setField)
	}
	remove := p.list(func(n *yaml.Node) error {
		path := fieldPath(n.Value)
		p.rules.request = append(p.rules.request, fieldChange{path: path})
		return p.eachField(n, path, func(protoreflect.FieldDescriptor) error { return nil })
	})
	if err := p.mapping(n, "a change of the request", members{"set": set, "remove": remove}); err != nil {
		return err
	}
	// Removing comes first, wherever it stands in the file.
	slices.SortStableFunc(p.rules.request, func(a, b fieldChange) int {
		switch {
		case a.expr == nil && b.expr != nil:
			return -1
		case a.expr != nil && b.expr == nil:
			return 1
		}
		return 0
	})
	return nil
}

func fieldPath(text string) []protoreflect.Name {
	var path []protoreflect.Name
	for name := range strings.SplitSeq(text, ".") {
		path = append(path, protoreflect.Name(name))
	}
	return path
}

func (p *rewriteParser) setField(key, value *yaml.Node) error {
	c := fieldChange{path: fieldPath(key.Value)}
	var kind expectedType
	err := p.eachField(key, c.path, func(f protoreflect.FieldDescriptor) error {
		t := celType(f)
		if t == nil || f.IsList() || f.IsMap() {
			return p.src.errorf(key, "field %s is no single value: only bool, numbers, enums, string and bytes can be set", key.Value)
		}
		if kind.kind != nil && kind.kind != t {
			return p.src.errorf(key, "field %s is %s in one request and %s in another: name the methods", key.Value, article(kind.kind), article(t))
		}
		kind = expectedType{t, key.Value}
		return nil
	})
	if err != nil {
		return err
	}
	c.expr, err = p.compile(value, kind)
	p.rules.request = append(p.rules.request, c)
	return err
}

// eachField calls f with the field at a path in each request type of the policy's calls.
func (p *rewriteParser) eachField(n *yaml.Node, path []protoreflect.Name, f func(protoreflect.FieldDescriptor) error) error {
	for _, input := range p.selected {
		d, last := p.inputs.descriptor(input), len(path)-1
		for i, name := range path {
			field := d.Fields().ByName(name)
			if field == nil {
				return p.src.errorf(n, "%s has no field %q: %s", d.FullName(), name, spell.Hint(string(name), fieldNames(d)))
			}
			if i == last {
				if err := f(field); err != nil {
					return err
				}
				break
			}
			if d = field.Message(); d == nil || field.IsList() || field.IsMap() {
				return p.src.errorf(n, "field %s is no message", name)
			}
		}
	}
	return nil
}
