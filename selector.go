package outboard

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Selector says which devices fit: parts joined by commas, all of which must
// hold. The empty selector fits every device.
//
//	type=gpu,memory>=4GiB,vendor~nvidia
//
// Text fields (id, node, api, type, name, vendor, platform, driver, version)
// take = and != for equality and ~ and !~ for "contains", all without regard to
// case. Number fields (memory, units) take =, !=, <, <=, > and >=.
type Selector struct{ parts []part }

// Limits of a selector. Each node compares those of all waiting requests with all devices.
const (
	maxSelector      = 4 << 10 // bytes
	maxSelectorParts = 64
)

type part struct {
	field, op, value string
	number           uint64
}

// selectorOps are the operators, the longest first, so that ">=" is not read as ">".
var selectorOps = []string{">=", "<=", "!=", "!~", "=", "~", ">", "<"}

var textFields = map[string]func(Device) string{
	"id":       func(d Device) string { return string(d.ID) },
	"node":     func(d Device) string { return string(d.Node) },
	"api":      func(d Device) string { return string(d.API) },
	"type":     func(d Device) string { return string(d.Type) },
	"name":     func(d Device) string { return d.Name },
	"vendor":   func(d Device) string { return d.Vendor },
	"platform": func(d Device) string { return d.Platform },
	"driver":   func(d Device) string { return d.Driver },
	"version":  func(d Device) string { return d.Version },
}

var numberFields = map[string]func(Device) uint64{
	"memory": func(d Device) uint64 { return uint64(d.Memory) },
	"units":  func(d Device) uint64 { return uint64(d.Units) },
}

// ParseSelector reads a selector. A device id alone, "harbour/opencl/0", means
// id=harbour/opencl/0.
func ParseSelector(s string) (Selector, error) {
	var sel Selector
	if n := len(s); n > maxSelector {
		return sel, &Error{Op: "selector", Kind: Invalid, Err: fmt.Errorf("it has %d bytes, more than %d", n, maxSelector)}
	}
	for text := range strings.SplitSeq(s, ",") {
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		p, err := parsePart(text)
		if err != nil {
			return Selector{}, &Error{Op: fmt.Sprintf("selector %q", s), Kind: Invalid, Err: err}
		}
		if sel.parts = append(sel.parts, p); len(sel.parts) > maxSelectorParts {
			return Selector{}, &Error{Op: "selector", Kind: Invalid, Err: fmt.Errorf("it has more than %d parts", maxSelectorParts)}
		}
	}
	return sel, nil
}

func parsePart(text string) (part, error) {
	at, op := findOp(text)
	if op == "" {
		if strings.Count(text, "/") == 2 {
			return part{field: "id", op: "=", value: text}, nil
		}
		return part{}, fmt.Errorf("%q has no operator: write FIELD=VALUE, as in type=gpu or memory>=4GiB, in quotes for a shell", text)
	}
	p := part{field: strings.ToLower(strings.TrimSpace(text[:at])), op: op, value: strings.TrimSpace(text[at+len(op):])}
	if _, ok := textFields[p.field]; ok {
		if strings.ContainsAny(op, "<>") {
			return part{}, fmt.Errorf("%q compares text: use =, !=, ~ or !~", text)
		}
		return p, nil
	}
	if _, ok := numberFields[p.field]; !ok {
		return part{}, fmt.Errorf("%q is no field of a device: use one of %s", p.field, strings.Join(selectorFields(), ", "))
	}
	if strings.Contains(op, "~") {
		return part{}, fmt.Errorf("%q is a number: use =, !=, <, <=, > or >=", p.field)
	}
	n, err := parseNumber(p.field, p.value)
	p.number = n
	return p, err
}

func parseNumber(field, value string) (uint64, error) {
	if field == "memory" {
		b, err := ParseBytes(value)
		return uint64(b), err
	}
	n, err := strconv.ParseUint(value, 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s=%q: want a whole number", field, value)
	}
	return n, nil
}

// findOp returns the first operator of text and where it stands.
func findOp(text string) (int, string) {
	for i := range text {
		for _, op := range selectorOps {
			if strings.HasPrefix(text[i:], op) {
				return i, op
			}
		}
	}
	return 0, ""
}

func selectorFields() []string {
	var names []string
	for name := range textFields {
		names = append(names, name)
	}
	for name := range numberFields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (p part) String() string { return p.field + p.op + p.value }

func (p part) match(d Device) bool {
	if get, ok := numberFields[p.field]; ok {
		return compare(get(d), p.op, p.number)
	}
	have, want := strings.ToLower(textFields[p.field](d)), strings.ToLower(p.value)
	switch p.op {
	case "=":
		return have == want
	case "!=":
		return have != want
	case "~":
		return strings.Contains(have, want)
	default:
		return !strings.Contains(have, want)
	}
}

func compare(have uint64, op string, want uint64) bool {
	switch op {
	case "=":
		return have == want
	case "!=":
		return have != want
	case "<":
		return have < want
	case "<=":
		return have <= want
	case ">":
		return have > want
	default:
		return have >= want
	}
}

// String gives the selector back in its text form.
func (s Selector) String() string {
	texts := make([]string, len(s.parts))
	for i, p := range s.parts {
		texts[i] = p.String()
	}
	return strings.Join(texts, ",")
}

// Match reports whether every part holds for d.
func (s Selector) Match(d Device) bool {
	return !slices.ContainsFunc(s.parts, func(p part) bool { return !p.match(d) })
}

// Select returns the devices that match. When there is none, the error says
// which part of the selector no device met, or that none met all of them.
func (s Selector) Select(devices []Device) ([]Device, error) {
	var fit []Device
	for i := range devices {
		if d := devices[i]; s.Match(d) {
			fit = append(fit, d)
		}
	}
	if len(fit) > 0 {
		return fit, nil
	}
	return nil, &Error{Op: s.op(), Kind: NoDevice, Err: s.whyNone(devices)}
}

func (s Selector) op() string {
	if len(s.parts) == 0 {
		return "select a device"
	}
	return fmt.Sprintf("select %q", s)
}

func (s Selector) whyNone(devices []Device) error {
	if len(devices) == 0 {
		return fmt.Errorf("the pool has no devices: start a node where one is, with `outboard up`")
	}
	for _, p := range s.parts {
		if !slices.ContainsFunc(devices, p.match) {
			return fmt.Errorf("no device meets %q; they have %s", p, p.offered(devices))
		}
	}
	return fmt.Errorf("each part is met by some device, but no device meets all of them; see `outboard devices`")
}

// offered lists what the devices have in the part's field.
func (p part) offered(devices []Device) string {
	var have []string
	for i := range devices {
		if text := p.shown(devices[i]); !slices.Contains(have, text) {
			have = append(have, text)
		}
	}
	return strings.Join(have, ", ")
}

// shown is the device's value of the part's field, for people.
func (p part) shown(d Device) string {
	if get, ok := textFields[p.field]; ok {
		return strconv.Quote(get(d))
	}
	if p.field == "memory" {
		return d.Memory.String()
	}
	return strconv.FormatUint(numberFields[p.field](d), 10)
}

// Set reads a command-line flag.
func (s *Selector) Set(text string) error {
	v, err := ParseSelector(text)
	*s = v
	return err
}

// Type names the flag's value in help texts.
func (s *Selector) Type() string { return "selector" }

// MarshalText implements encoding.TextMarshaler.
func (s Selector) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Selector) UnmarshalText(text []byte) error { return s.Set(string(text)) }
