package grammar

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
)

// keywordsOf are the keywords that describe values of each type.
var keywordsOf = map[string][]string{
	"object":  {"properties", "required", "additionalProperties", "propertyNames"},
	"array":   {"items", "prefixItems", "minItems", "maxItems", "uniqueItems"},
	"string":  {"minLength", "maxLength", "format", "pattern"},
	"integer": {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"number":  {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"},
	"boolean": nil,
	"null":    nil,
}

// typed compiles a schema by its type, or by the type to which its keywords belong.
func (c *compiler) typed(o *object, path string) (node, error) {
	types := typesOf(o)
	if _, there := o.get("type"); !there {
		types = c.guessTypes(o)
	}
	allowed := []string{"type"}
	for _, t := range types {
		if _, ok := keywordsOf[t]; !ok {
			return nil, errNotType(path, t)
		}
		allowed = append(allowed, keywordsOf[t]...)
	}
	if err := only(o, path, allowed...); err != nil {
		return nil, err
	}
	if len(types) == 0 {
		if _, there := o.get("type"); there {
			return nil, refuse(step(path, "type"), "%w: it names no type", errUnsatisfiable)
		}
		return c.any(anyDepth), nil
	}
	var options choice
	for _, t := range types {
		n, err := c.ofType(t, o, path)
		if err != nil {
			return nil, err
		}
		options = append(options, n)
	}
	if len(options) == 1 {
		return options[0], nil
	}
	return options, nil
}

// guessTypes returns the type to which the keywords of a schema without a type belong: values of
// other types satisfy the schema too, but generating values of this type suffices.
func (c *compiler) guessTypes(o *object) []string {
	for _, t := range []string{"object", "array", "string", "number"} {
		for _, key := range keywordsOf[t] {
			if _, there := o.get(key); there {
				return []string{t}
			}
		}
	}
	return nil
}

func (c *compiler) ofType(t string, o *object, path string) (node, error) {
	c.addBasic()
	if _, there := o.get("multipleOf"); there && (t == "integer" || t == "number") {
		return compileMultiples(c, t, o, path)
	}
	switch t {
	case "object":
		return c.object(o, path)
	case "array":
		return c.array(o, path)
	case "string":
		return c.string(o, path)
	case "integer":
		return c.integer(o, path)
	case "number":
		return c.number(o, path)
	case "boolean":
		return choice{literal("true"), literal("false")}, nil
	default:
		return literal("null"), nil
	}
}

// addBasic defines the rules of basic values, which schemas share.
func (c *compiler) addBasic() {
	if c.basic {
		return
	}
	c.basic = true
	hex := charset("[0-9a-fA-F]")
	// A lone surrogate is no character: \uD800 to \uDFFF are excluded.
	unicode := choice{
		sequence{charset("[0-9a-cA-CefEF]"), hex, hex, hex},
		sequence{charset("[dD]"), charset("[0-7]"), hex, hex},
	}
	c.rules = append(
		c.rules,
		rule{name: "char", node: choice{charset(`[^"\\\x00-\x1F\x7F]`), sequence{literal(`\`), choice{charset(`["\\/bfnrt]`), sequence{literal("u"), unicode}}}}},
		rule{name: "comma", node: sequence{literal(","), repeated{literal(" "), 0, 1}}},
		rule{name: "colon", node: sequence{literal(":"), repeated{literal(" "), 0, 1}}},
		rule{name: "string", node: sequence{literal(`"`), repeated{ref("char"), 0, -1}, literal(`"`)}},
		rule{name: "integer", node: sequence{repeated{literal("-"), 0, 1}, choice{literal("0"), sequence{charset("[1-9]"), repeated{charset("[0-9]"), 0, 14}}}}},
		rule{name: "number", node: sequence{ref("integer"), repeated{sequence{literal("."), repeated{charset("[0-9]"), 1, 15}}, 0, 1}, repeated{sequence{charset("[eE]"), repeated{charset("[-+]"), 0, 1}, charset("[0-9]"), repeated{charset("[0-9]"), 0, 1}}, 0, 1}}},
	)
}

// any returns an expression for any value that nests at most depth levels deep.
func (c *compiler) any(depth int) node {
	c.addBasic()
	options := choice{ref("string"), ref("number"), literal("true"), literal("false"), literal("null")}
	if depth == 0 {
		return options
	}
	inner := c.anyRef(depth - 1)
	return append(options, c.anyObject(inner), list(inner, 0, -1))
}

func (c *compiler) anyRef(depth int) ref {
	name := "any" + strconv.Itoa(depth)
	if r, ok := c.refs[name]; ok {
		return r
	}
	r := c.define(c.any(depth), "")
	c.refs[name] = r
	return r
}

func (c *compiler) anyObject(inner node) node { return mapNode(ref("string"), inner) }

// mapNode returns an expression for an object of any members with such names and values.
func mapNode(name, inner node) node {
	member := sequence{name, ref("colon"), inner}
	return sequence{literal("{"), repeated{sequence{member, repeated{sequence{ref("comma"), member}, 0, -1}}, 0, 1}, literal("}")}
}

// list returns an expression for an array of low to high values; high is -1 for any number.
func list(item node, low, high int) node {
	if high == 0 {
		return literal("[]")
	}
	rest := -1
	if high > 0 {
		rest = high - 1
	}
	items := sequence{item, repeated{sequence{ref("comma"), item}, max(low-1, 0), rest}}
	if low == 0 {
		return sequence{literal("["), repeated{items, 0, 1}, literal("]")}
	}
	return sequence{literal("["), items, literal("]")}
}

func (c *compiler) object(o *object, path string) (node, error) {
	properties := &object{values: map[string]value{}}
	if v, there := o.get("properties"); there {
		var ok bool
		if properties, ok = v.(*object); !ok {
			return nil, refuse(step(path, "properties"), "it must be an object")
		}
	}
	required, err := c.required(o, properties, path)
	if err != nil {
		return nil, err
	}
	if len(properties.keys) == 0 {
		return c.mapOf(o, path)
	}
	if names, ok := o.values["propertyNames"].(*object); ok && !slices.Equal(keywords(names), []string{"type"}) {
		return nil, refuse(step(path, "propertyNames"), "it is supported for objects without properties: no others than the declared ones are generated")
	}
	members := make([]node, len(properties.keys))
	for i, key := range properties.keys {
		if err := c.charge(len(path)+len(key)+itemCost, path); err != nil {
			return nil, err
		}
		at := step(step(path, "properties"), key)
		if properties.values[key] == false && !required[key] {
			continue
		}
		name, err := c.literalOf(key, at)
		if err != nil {
			return nil, err
		}
		n, err := c.compile(properties.values[key], at)
		if err != nil {
			return nil, err
		}
		members[i] = sequence{name, ref("colon"), n}
	}
	// Built from the last property on: the rest after an earlier property, and the rest without
	// one.
	var after, begin node = sequence{}, sequence{}
	for i, m := range slices.Backward(members) {
		if m == nil {
			continue
		}
		member := c.define(m, "")
		with, first := sequence{ref("comma"), member, after}, sequence{member, after}
		if required[properties.keys[i]] {
			after, begin = c.define(with, path), c.define(first, path)
		} else {
			after, begin = c.define(choice{with, after}, path), c.define(choice{first, begin}, path)
		}
	}
	return sequence{literal("{"), begin, literal("}")}, nil
}

// required returns the names of required properties, all of which must be declared.
func (c *compiler) required(o, properties *object, path string) (map[string]bool, error) {
	v, there := o.get("required")
	if !there {
		return nil, nil
	}
	items, ok := v.([]value)
	if !ok {
		return nil, refuse(step(path, "required"), "it must be an array")
	}
	if err := c.charge(len(items)*itemCost, path); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, item := range items {
		name, _ := item.(string)
		if _, declared := properties.get(name); !declared {
			if o.values["additionalProperties"] == false {
				return nil, refuse(step(path, "required"), "%w: %q is required, and additionalProperties is false", errUnsatisfiable, name)
			}
			return nil, refuse(step(path, "required"), "%q is not among the properties: declare it there", name)
		}
		names[name] = true
	}
	return names, nil
}

// mapOf compiles an object without declared properties.
func (c *compiler) mapOf(o *object, path string) (node, error) {
	name, err := compileName(c, o, path)
	if err != nil {
		return nil, err
	}
	v, there := o.get("additionalProperties")
	if !there || v == true {
		return mapNode(name, c.anyRef(anyDepth-1)), nil
	}
	if v == false {
		return literal("{}"), nil
	}
	n, err := c.compile(v, step(path, "additionalProperties"))
	if err != nil {
		return nil, err
	}
	return mapNode(name, c.define(n, step(path, "additionalProperties"))), nil
}

// compileName compiles the names of an object's members, which are texts.
func compileName(c *compiler, o *object, path string) (node, error) {
	v, there := o.get("propertyNames")
	if !there || v == true {
		return ref("string"), nil
	}
	at := step(path, "propertyNames")
	schema, err := target(c, v, at)
	if err != nil {
		return nil, err
	}
	if schema == nil {
		return nil, refuse(at, "it must be a schema of texts")
	}
	if err := only(schema, at, append([]string{"type", "enum", "const"}, keywordsOf["string"]...)...); err != nil {
		return nil, err
	}
	if types := typesOf(schema); len(types) > 0 && !slices.Contains(types, "string") {
		return nil, refuse(step(at, "type"), "names are texts: it must be string")
	}
	texts := &object{keys: append([]string{"type"}, schema.keys...), values: maps.Clone(schema.values)}
	texts.values["type"] = "string" // names are no other values
	n, err := c.compile(texts, at)
	if err != nil {
		return nil, err
	}
	return c.define(n, at), nil
}

func (c *compiler) array(o *object, path string) (node, error) {
	low, high, err := bounds(o, path, "minItems", "maxItems")
	if err != nil {
		return nil, err
	}
	unique := o.values["uniqueItems"] == true && high != 0 && high != 1
	if _, there := o.get("prefixItems"); there && !unique {
		return c.tuple(o, path, low, high)
	}
	if unique {
		return compileUnique(c, o, path, low, high)
	}
	var item node = c.anyRef(anyDepth - 1)
	if v, there := o.get("items"); there && high != 0 {
		if v == false && low == 0 {
			return literal("[]"), nil
		}
		n, err := c.compile(v, step(path, "items"))
		if err != nil {
			return nil, err
		}
		item = c.define(n, step(path, "items"))
	}
	return list(item, low, high), nil
}

// tuple compiles an array with a schema for each of its items; it has exactly as many items.
func (c *compiler) tuple(o *object, path string, low, high int) (node, error) {
	at := step(path, "prefixItems")
	schemas, ok := o.values["prefixItems"].([]value)
	if !ok || len(schemas) == 0 {
		return nil, refuse(at, "it must be an array of schemas")
	}
	if low > len(schemas) || high >= 0 && high < len(schemas) {
		return nil, refuse(at, "minItems and maxItems must allow %d items", len(schemas))
	}
	s := sequence{literal("[")}
	for i, schema := range schemas {
		if i > 0 {
			s = append(s, ref("comma"))
		}
		n, err := c.compile(schema, fmt.Sprintf("%s/%d", at, i))
		if err != nil {
			return nil, err
		}
		s = append(s, n)
	}
	return append(s, literal("]")), nil
}

// bounds reads two keywords that are counts; high is -1 if the second is missing.
func bounds(o *object, path, lowest, highest string) (low, high int, err error) {
	high = -1
	for key, to := range map[string]*int{lowest: &low, highest: &high} {
		v, there := o.get(key)
		if !there {
			continue
		}
		n, _ := v.(json.Number)
		f, err := n.Float64()
		if err != nil || f < 0 || f != math.Trunc(f) {
			return 0, 0, refuse(step(path, key), "it must be a whole number of at least 0")
		}
		*to = int(min(f, math.MaxInt32))
	}
	if high >= 0 && low > high {
		return 0, 0, refuse(step(path, lowest), "%w: it is larger than %s", errUnsatisfiable, highest)
	}
	if low > maxRepeat {
		return 0, 0, refuse(step(path, lowest), "at most %d is supported", maxRepeat)
	}
	if high > maxRepeat {
		high = maxRepeat
	}
	return low, high, nil
}

func (c *compiler) string(o *object, path string) (node, error) {
	low, high, err := bounds(o, path, "minLength", "maxLength")
	if err != nil {
		return nil, err
	}
	_, hasPattern := o.get("pattern")
	if v, there := o.get("format"); there {
		name, _ := v.(string)
		switch n := formats()[name]; {
		case n != nil:
			return compileFormat(c, o, path, n, low, high)
		case !hasPattern: // otherwise it is an annotation, which Zod writes
			return nil, refuse(step(path, "format"), "%q is not supported: %s are", name, strings.Join(slices.Sorted(maps.Keys(formats())), ", "))
		}
	}
	if hasPattern {
		n, err := compilePattern(c, o, path, low, high)
		return sequence{literal(`"`), n, literal(`"`)}, err
	}
	if low == 0 && high < 0 {
		return ref("string"), nil
	}
	return sequence{literal(`"`), repeated{ref("char"), low, high}, literal(`"`)}, nil
}

// compileFormat compiles a text of a format, whose expression is n.
func compileFormat(c *compiler, o *object, path string, n node, low, high int) (node, error) {
	if err := c.charge(expressionCost, path); err != nil {
		return nil, err
	}
	if shortest, longest := lengths(n); low > shortest || high >= 0 && high < longest {
		return nil, refuse(step(path, "format"), "texts of %q have %d to %d characters here: minLength and maxLength must allow them", o.values["format"], shortest, longest)
	}
	if _, there := o.get("pattern"); there {
		if err := checkIncludes(c, o, path, n); err != nil {
			return nil, err
		}
	}
	return sequence{literal(`"`), n, literal(`"`)}, nil
}

// integerLimit returns the smallest or largest integer that the keywords allow.
func integerLimit(o *object, path, inclusive, exclusive string, otherwise int64, up bool) (int64, error) {
	best := big.NewInt(otherwise)
	for _, key := range []string{inclusive, exclusive} {
		v, there := o.get(key)
		if !there {
			continue
		}
		n, _ := v.(json.Number)
		if len(n) > 64 {
			return 0, refuse(step(path, key), "it has too many digits")
		}
		if f, err := n.Float64(); err != nil || math.Abs(f) > 1e18 {
			return 0, refuse(step(path, key), "it must be a number of at most %d", maxInteger)
		}
		r, ok := new(big.Rat).SetString(n.String())
		if !ok {
			return 0, refuse(step(path, key), "it must be a number")
		}
		// The floor of r is the upper limit; the lower limit is its ceiling.
		quotient := new(big.Int).Div(r.Num(), r.Denom())
		exact := r.IsInt()
		if up && !exact {
			quotient.Add(quotient, big.NewInt(1))
		}
		if key == exclusive && exact {
			quotient.Add(quotient, big.NewInt(map[bool]int64{true: 1, false: -1}[up]))
		}
		if up == (quotient.Cmp(best) > 0) {
			best = quotient
		}
	}
	if !best.IsInt64() || best.Int64() > maxInteger || best.Int64() < -maxInteger {
		return 0, refuse(path, "its limits must lie within ±%d", maxInteger)
	}
	return best.Int64(), nil
}

// expressionCost is what is charged for a format, or for a number within limits: about the size of
// its expression, which is large beside the schema.
const expressionCost = 2 << 10

func limited(o *object) bool {
	return slices.ContainsFunc([]string{"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}, func(key string) bool {
		_, there := o.get(key)
		return there
	})
}

// integerLimits returns the smallest and the largest integer that a schema allows.
func integerLimits(o *object, path string) (low, high int64, err error) {
	if low, err = integerLimit(o, path, "minimum", "exclusiveMinimum", -maxInteger, true); err != nil {
		return 0, 0, err
	}
	high, err = integerLimit(o, path, "maximum", "exclusiveMaximum", maxInteger, false)
	return low, high, err
}

func (c *compiler) integer(o *object, path string) (node, error) {
	if !limited(o) {
		return ref("integer"), nil
	}
	if err := c.charge(expressionCost, path); err != nil {
		return nil, err
	}
	low, high, err := integerLimits(o, path)
	if err != nil {
		return nil, err
	}
	if low > high {
		return nil, refuse(path, "%w: no integer lies within its limits", errUnsatisfiable)
	}
	return integers(low, high), nil
}

// number compiles a number. Between limits it has a whole part from the smallest to the largest
// integer, and a fraction if the next integer is also within the limits.
func (c *compiler) number(o *object, path string) (node, error) {
	if !limited(o) {
		return ref("number"), nil
	}
	if err := c.charge(3*expressionCost, path); err != nil {
		return nil, err
	}
	low, high, err := integerLimits(o, path)
	if err != nil {
		return nil, err
	}
	return numberWithin(low, high, path, 15)
}

// numberWithin compiles a number between integers, with at most so many decimals.
func numberWithin(low, high int64, path string, places int) (node, error) {
	if low > high {
		return nil, refuse(path, "limits of a number without an integer between them are not supported")
	}
	options := choice{integers(low, high)}
	fraction := sequence{literal("."), repeated{charset("[0-9]"), 1, places}}
	if high > max(low, 0) {
		options = append(options, sequence{naturals(max(low, 0), high-1), fraction})
	}
	if low < min(high, 0) {
		// From -low to 0, with the sign: -0.5 is above low if low is -1.
		options = append(options, sequence{literal("-"), naturals(max(0, -high), -low-1), fraction})
	}
	return options, nil
}
