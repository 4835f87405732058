package grammar

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
)

// Limits of a schema.
const (
	maxSchema = 256 << 10 // bytes
	maxRules  = 4096
	// maxSteps bounds the number of schemas that are compiled, references counted.
	maxSteps = 20000
	// maxRepeat bounds repetitions where a schema allows more.
	maxRepeat = 1000
	// maxWork bounds what one schema, or the tools of one request, may cost: the bytes of paths,
	// names and constants, counted as often as they are compiled. References and merges can compile
	// the same value many times.
	maxWork = 8 << 20
	// anyDepth is the nesting depth of values that a schema does not describe.
	anyDepth = 3
)

// errUnsatisfiable is wrapped by refusals of schemas that no value satisfies.
var errUnsatisfiable = errors.New("nothing satisfies it")

// FromSchema returns a grammar for the values that a JSON schema describes (draft 2020-12,
// supported keywords only). Errors name the path of the keyword.
func FromSchema(schema []byte) (string, error) {
	if len(schema) > maxSchema {
		return "", refuse("#", "it has %d bytes: %d are accepted", len(schema), maxSchema)
	}
	root, err := parse(schema)
	if err != nil {
		return "", refuse("#", "it is no JSON: %w", err)
	}
	c := &compiler{root: root, refs: map[string]ref{}}
	n, err := c.compile(root, "#")
	if err != nil {
		return "", err
	}
	c.rules = append(c.rules, rule{name: "root", node: n})
	if err := checkFinite(c.rules, n); err != nil {
		return "", err
	}
	return c.text(), nil
}

// An Option is a value of a schema between two texts.
type Option struct {
	Prefix string
	Schema []byte
	Suffix string
}

// OneOf returns the grammar of one of several options. Each schema's references are within that
// schema.
func OneOf(options []Option) (string, error) {
	c := &compiler{refs: map[string]ref{}}
	var all choice
	var values []node
	for _, o := range options {
		if len(o.Schema) > maxSchema {
			return "", refuse("#", "it has %d bytes: %d are accepted", len(o.Schema), maxSchema)
		}
		root, err := parse(o.Schema)
		if err != nil {
			return "", refuse("#", "it is no JSON: %w", err)
		}
		maps.DeleteFunc(c.refs, func(name string, _ ref) bool { return !strings.HasPrefix(name, "any") })
		c.root = root
		n, err := c.compile(root, "#")
		if err != nil {
			return "", err
		}
		prefix, suffix := literal(o.Prefix), literal(o.Suffix)
		all, values = append(all, sequence{prefix, n, suffix}), append(values, n)
	}
	if err := checkFinite(c.rules, values...); err != nil {
		return "", err
	}
	c.rules = append(c.rules, rule{name: "root", node: all})
	return c.text(), nil
}

// Object returns a grammar for any JSON object.
func Object() string {
	text, err := FromSchema([]byte(`{"type":"object","additionalProperties":true}`))
	if err != nil {
		panic(err) //nolint:forbidigo // the schema is a constant
	}
	return text
}

// Choice returns the grammar of one of several texts.
func Choice(texts ...string) string {
	c := choice{}
	for _, t := range texts {
		c = append(c, literal(t))
	}
	return (&compiler{rules: []rule{{name: "root", node: c}}}).text()
}

type compiler struct {
	root  value
	rules []rule
	refs  map[string]ref // by the target's path
	basic bool           // the rules of basic values are defined
	names int
	steps int
	work  int // of maxWork
}

// charge counts work, in bytes. A schema that costs too much is refused.
func (c *compiler) charge(n int, path string) error {
	if c.work += n; c.work > maxWork {
		return errTooLarge(path)
	}
	return nil
}

// itemCost is what is charged for an item of a list, beside its bytes.
const itemCost = 16

func (c *compiler) text() string {
	var b strings.Builder
	for _, r := range c.rules {
		b.WriteString(r.name + " ::= ")
		r.node.write(&b)
		b.WriteByte('\n')
	}
	return b.String()
}

// define adds a rule and returns a reference to it.
func (c *compiler) define(n node, path string) ref {
	c.names++
	name := fmt.Sprintf("r%d", c.names)
	c.rules = append(c.rules, rule{name, n, path})
	return ref(name)
}

// annotations are keywords that have no effect on validity. OpenAPI's discriminator is a hint for
// parsers, and "MUST NOT change the validation outcome" (3.1, 4.8.25).
var annotations = []string{
	"title", "description", "default", "examples", "$schema", "$id", "$comment", "$anchor", "deprecated", "readOnly", "writeOnly",
	"$defs", "definitions", "contentMediaType", "contentEncoding", "strict", "name", "discriminator",
}

// keywords returns the keywords of a schema that are not annotations.
func keywords(o *object) []string {
	var list []string
	for _, key := range o.keys {
		if !slices.Contains(annotations, key) {
			list = append(list, key)
		}
	}
	return list
}

// only returns an error unless all keywords of a schema are among the allowed ones.
func only(o *object, path string, allowed ...string) error {
	for _, key := range keywords(o) {
		if !slices.Contains(allowed, key) {
			if beside := slices.DeleteFunc(keywords(o), func(k string) bool { return k == key }); len(beside) > 0 && known(key) {
				return refuse(step(path, key), "it is not supported beside %s", strings.Join(beside, ", "))
			}
			return refuse(step(path, key), "this keyword is not supported")
		}
	}
	return nil
}

func known(key string) bool {
	return slices.Contains([]string{
		"type", "enum", "const", "anyOf", "oneOf", "allOf", "$ref", "properties", "required", "additionalProperties", "items", "prefixItems",
		"minItems", "maxItems", "minLength", "maxLength", "format", "pattern", "multipleOf", "uniqueItems", "propertyNames", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum",
	}, key)
}

func (c *compiler) compile(schema value, path string) (node, error) {
	if c.steps++; len(c.rules) > maxRules || c.steps > maxSteps || strings.Count(path, "/") > 2*maxDepth {
		return nil, errTooLarge(path)
	}
	if err := c.charge(len(path)+itemCost, path); err != nil {
		return nil, err
	}
	if b, ok := schema.(bool); ok && b {
		return c.any(anyDepth), nil
	}
	if schema == false {
		return nil, refuse(path, "%w: it is false", errUnsatisfiable)
	}
	o, ok := schema.(*object)
	if !ok {
		return nil, refuse(path, "a schema is an object or a boolean")
	}
	for key, compile := range map[string]func(*object, string) (node, error){
		"$ref": c.reference, "const": c.constant, "enum": c.enumeration, "anyOf": c.anyOf, "oneOf": c.anyOf, "allOf": c.allOf,
	} {
		if _, there := o.get(key); there {
			return compile(o, path)
		}
	}
	return c.typed(o, path)
}

func (c *compiler) reference(o *object, path string) (node, error) {
	if err := only(o, path, "$ref"); err != nil {
		return nil, err
	}
	at := step(path, "$ref")
	target, _ := o.values["$ref"].(string)
	if err := c.charge(len(target), path); err != nil {
		return nil, err
	}
	if r, ok := c.refs[target]; ok {
		return r, nil
	}
	schema, err := c.resolve(target, at)
	if err != nil {
		return nil, err
	}
	// The rule's name is defined before its schema is compiled, since the schema may refer to
	// itself.
	r := c.define(nil, target)
	i := len(c.rules) - 1
	c.refs[target] = r
	n, err := c.compile(schema, target)
	if err == nil && n == node(r) {
		err = refuse(at, "it refers to itself")
	}
	c.rules[i].node = n
	return r, err
}

// resolve returns the schema that a reference within the root schema points to (RFC 6901).
func (c *compiler) resolve(target, at string) (value, error) {
	rest, local := strings.CutPrefix(target, "#")
	if !local {
		return nil, refuse(at, "%q is not within this schema: it begins with #", target)
	}
	v := c.root
	for key := range strings.SplitSeq(strings.TrimPrefix(rest, "/"), "/") {
		if key == "" {
			continue
		}
		key = strings.NewReplacer("~1", "/", "~0", "~").Replace(key)
		o, ok := v.(*object)
		if !ok {
			return nil, refuse(at, "%q does not exist", target)
		}
		if v, ok = o.get(key); !ok {
			return nil, refuse(at, "%q does not exist", target)
		}
	}
	return v, nil
}

func (c *compiler) constant(o *object, path string) (node, error) {
	if err := only(o, path, "const", "type"); err != nil {
		return nil, err
	}
	if !c.typeAllows(o, o.values["const"]) {
		return nil, refuse(step(path, "const"), "%w: its type is not %s", errUnsatisfiable, encode(o.values["type"]))
	}
	return c.literalOf(o.values["const"], step(path, "const"))
}

func (c *compiler) literalOf(v value, path string) (node, error) {
	text := encode(v)
	if err := c.charge(len(text), path); err != nil {
		return nil, err
	}
	if !validText(text) {
		return nil, refuse(path, "it contains a zero byte or no UTF-8")
	}
	return literal(text), nil
}

func (c *compiler) enumeration(o *object, path string) (node, error) {
	if err := only(o, path, "enum", "type"); err != nil {
		return nil, err
	}
	list, _ := o.values["enum"].([]value)
	if err := c.charge(len(list)*(len(path)+itemCost), path); err != nil {
		return nil, err
	}
	var options choice
	for _, v := range list {
		if !c.typeAllows(o, v) {
			continue
		}
		n, err := c.literalOf(v, step(path, "enum"))
		if err != nil {
			return nil, err
		}
		options = append(options, n)
	}
	if len(options) == 0 {
		return nil, refuse(step(path, "enum"), "%w: it lists no value of the schema's type", errUnsatisfiable)
	}
	return options, nil
}

// typeAllows reports whether the keyword type, if the schema has it, allows v.
func (c *compiler) typeAllows(o *object, v value) bool {
	if _, there := o.get("type"); !there {
		return true
	}
	types := typesOf(o)
	switch v := v.(type) {
	case nil:
		return slices.Contains(types, "null")
	case bool:
		return slices.Contains(types, "boolean")
	case string:
		return slices.Contains(types, "string")
	case json.Number:
		r, ok := new(big.Rat).SetString(v.String())
		return slices.Contains(types, "number") || slices.Contains(types, "integer") && ok && r.IsInt()
	case []value:
		return slices.Contains(types, "array")
	default:
		return slices.Contains(types, "object")
	}
}

func typesOf(o *object) []string {
	switch t := o.values["type"].(type) {
	case string:
		return []string{t}
	case []value:
		var list []string
		for _, v := range t {
			s, _ := v.(string)
			list = append(list, s)
		}
		return list
	}
	return nil
}

func (c *compiler) anyOf(o *object, path string) (node, error) {
	key := "anyOf"
	if _, there := o.get("oneOf"); there {
		key = "oneOf"
	}
	if err := only(o, path, key); err != nil {
		return nil, err
	}
	list, _ := o.values[key].([]value)
	if key == "oneOf" && len(list) > 1 {
		exclusive, err := exclusive(c, list, step(path, key))
		if err != nil {
			return nil, err
		}
		if !exclusive {
			return nil, refuse(step(path, key), "it is supported where its schemas differ in type, in a constant, or in the constants of a required property; use anyOf")
		}
	}
	var options choice
	var reason error
	for i, schema := range list {
		n, err := c.compile(schema, fmt.Sprintf("%s/%d", step(path, key), i))
		if err != nil && !errors.Is(err, errUnsatisfiable) {
			return nil, err
		}
		if err != nil {
			reason = err
			continue
		}
		options = append(options, n)
	}
	if reason == nil && len(options) == 0 {
		reason = refuse(step(path, key), "%w: it is empty", errUnsatisfiable)
	}
	if len(options) == 0 {
		return nil, reason
	}
	return c.define(options, step(path, key)), nil
}

// allOf merges schemas of objects; a schema of another type must be the only one.
func (c *compiler) allOf(o *object, path string) (node, error) {
	list, _ := o.values["allOf"].([]value)
	at := step(path, "allOf")
	if len(list) == 1 && len(keywords(o)) == 1 {
		return c.compile(list[0], at+"/0")
	}
	merged := &object{values: map[string]value{"properties": &object{values: map[string]value{}}, "required": []value{}, "type": "object"}, keys: []string{"type", "properties", "required"}}
	own := &object{values: map[string]value{}}
	for _, key := range keywords(o) {
		if key != "allOf" {
			own.keys = append(own.keys, key)
			own.values[key] = o.values[key]
		}
	}
	for i, schema := range append(slices.Clone(list), own) {
		if err := c.merge(merged, schema, fmt.Sprintf("%s/%d", at, i)); err != nil {
			return nil, err
		}
	}
	return c.typed(merged, path)
}

func (c *compiler) merge(into *object, schema value, path string) error {
	if c.steps++; c.steps > maxSteps {
		return errTooLarge(path)
	}
	o, ok := schema.(*object)
	if !ok {
		return refuse(path, "allOf is supported for schemas of objects")
	}
	if target, there := o.get("$ref"); there && len(keywords(o)) == 1 {
		text, _ := target.(string)
		if err := c.charge(len(text)+len(path), path); err != nil {
			return err
		}
		schema, err := c.resolve(text, step(path, "$ref"))
		if err != nil {
			return err
		}
		if strings.Count(path, "/") > maxDepth {
			return errUnending(path)
		}
		return c.merge(into, schema, step(path, "$ref"))
	}
	if err := only(o, path, "type", "properties", "required"); err != nil {
		return err
	}
	if types := typesOf(o); len(types) > 0 && !slices.Contains(types, "object") {
		return refuse(step(path, "type"), "allOf is supported for schemas of objects")
	}
	if err := c.mergeProperties(into, o, path); err != nil {
		return err
	}
	required, _ := into.values["required"].([]value)
	more, _ := o.values["required"].([]value)
	into.values["required"] = append(required, more...)
	return c.charge(len(more)*itemCost, path)
}

// mergeProperties adds the properties of o. A property that is declared twice must be the same.
func (c *compiler) mergeProperties(into, o *object, path string) error {
	properties, _ := into.values["properties"].(*object)
	more, ok := o.values["properties"].(*object)
	if !ok {
		return nil
	}
	for _, key := range more.keys {
		before, twice := properties.get(key)
		if !twice {
			properties.keys = append(properties.keys, key)
			properties.values[key] = more.values[key]
			continue
		}
		text := encode(before)
		if err := c.charge(len(text)+itemCost, path); err != nil {
			return err
		}
		if text != encode(more.values[key]) {
			return refuse(step(step(path, "properties"), key), "it is declared twice in different ways")
		}
	}
	return nil
}

func errTooLarge(path string) error { return refuse(path, "the schema is too large") }

func errUnending(path string) error {
	return refuse(path, "%w: it requires itself without an end", errUnsatisfiable)
}

func errNotType(path, name string) error {
	return refuse(step(path, "type"), "%q is no type", name)
}
