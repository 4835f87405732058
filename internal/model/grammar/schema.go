package grammar

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
)

// A value is a JSON value whose objects keep the order of their members: nil, bool, json.Number,
// string, []value, or *object.
type value any

type object struct {
	keys   []string
	values map[string]value
}

func (o *object) get(key string) (value, bool) {
	v, ok := o.values[key]
	return v, ok
}

// maxDepth bounds the nesting of a schema.
const maxDepth = 64

// parse reads one JSON value.
func parse(text []byte) (value, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	v, err := parseValue(d, 0)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("there is more after the schema")
	}
	return v, nil
}

func parseValue(d *json.Decoder, depth int) (value, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested more than %d deep", maxDepth)
	}
	t, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch t {
	case json.Delim('{'):
		return parseObject(d, depth)
	case json.Delim('['):
		list := []value{}
		for d.More() {
			v, err := parseValue(d, depth+1)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.Token()
		return list, err
	}
	if n, ok := t.(json.Number); ok {
		return n, checkNumber(n.String())
	}
	return t, nil
}

// maxDigits bounds the length of a number, and the magnitude of its exponent: exact arithmetic with
// 1e1000000 takes a million digits.
const maxDigits = 400

func checkNumber(text string) error {
	if at := strings.IndexAny(text, "eE"); at >= 0 && len(text) <= maxDigits {
		if e, err := strconv.Atoi(text[at+1:]); err != nil || max(e, -e) > maxDigits {
			return fmt.Errorf("the exponent of %s is beyond ±%d", text, maxDigits)
		}
	}
	if len(text) > maxDigits {
		return fmt.Errorf("a number has %d characters: %d are accepted", len(text), maxDigits)
	}
	return nil
}

func parseObject(d *json.Decoder, depth int) (value, error) {
	o := &object{values: map[string]value{}}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return nil, err
		}
		name, _ := key.(string)
		v, err := parseValue(d, depth+1)
		if err != nil {
			return nil, err
		}
		if _, twice := o.values[name]; !twice {
			o.keys = append(o.keys, name)
		}
		o.values[name] = v
	}
	_, err := d.Token()
	return o, err
}

// encode returns v as compact JSON.
func encode(v value) string {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	switch v := v.(type) {
	case *object:
		var parts []string
		for _, key := range v.keys {
			parts = append(parts, encode(key)+":"+encode(v.values[key]))
		}
		return "{" + strings.Join(parts, ",") + "}"
	case []value:
		var parts []string
		for _, item := range v {
			parts = append(parts, encode(item))
		}
		return "[" + strings.Join(parts, ",") + "]"
	default:
		_ = e.Encode(v) // strings, numbers, booleans and null can be encoded
		return strings.TrimSuffix(b.String(), "\n")
	}
}

func refuse(path, format string, args ...any) error {
	return outboard.Errorf(outboard.Invalid, "schema "+path, format, args...)
}

// step returns the path of a member.
func step(path, key string) string {
	return path + "/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(key)
}
