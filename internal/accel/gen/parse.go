package gen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The first op of the protocol's own messages and notices.
const (
	FirstMessage = 0x8000
	FirstNotice  = 0x8100
)

// Parse parses a description. An error contains the line number.
func Parse(text string) (*API, error) {
	p := parser{api: &API{Scalars: map[string]string{}}}
	for i, line := range strings.Split(text, "\n") {
		p.line = i + 1
		line, _, _ = strings.Cut(line, "#")
		if strings.TrimSpace(line) == "" {
			continue
		}
		if err := p.statement(line); err != nil {
			return nil, fmt.Errorf("line %d: %w", p.line, err)
		}
	}
	if err := p.api.complete(); err != nil {
		return nil, err
	}
	return p.api, nil
}

type parser struct {
	api  *API
	call *Call
	part string
	line int
}

func (p *parser) statement(line string) error {
	if line[0] == '\t' || line[0] == ' ' {
		if p.call == nil {
			return fmt.Errorf("a parameter needs a call above it")
		}
		param, err := p.param(strings.TrimSpace(line))
		if err == nil {
			p.call.Params = append(p.call.Params, param)
		}
		return err
	}
	words := strings.Fields(line)
	parse, ok := map[string]func([]string) error{
		"api": p.header, "headers": p.headers, "table": p.table, "driver": p.driver, "kind": p.kind,
		"type": p.scalar, "call": p.apiCall, "message": p.message, "notice": p.notice, "facts": p.facts, "part": p.setPart,
	}[words[0]]
	if !ok {
		return fmt.Errorf("unknown statement %q", words[0])
	}
	return parse(words[1:])
}

func (p *parser) header(w []string) error {
	if len(w) != 2 {
		return fmt.Errorf("want: api NAME PREFIX")
	}
	p.api.Name, p.api.Prefix = w[0], w[1]
	return nil
}

func (p *parser) headers(w []string) error { p.api.Headers = w; return nil }

func (p *parser) setPart(w []string) error {
	if len(w) > 1 {
		return fmt.Errorf("want: part [NAME]")
	}
	p.part = strings.Join(w, "")
	return nil
}

func (p *parser) table(w []string) error {
	if len(w) != 2 {
		return fmt.Errorf("want: table HEADER STRUCT")
	}
	p.api.TableHeader, p.api.TableStruct = w[0], w[1]
	return nil
}

func (p *parser) driver(w []string) error {
	if len(w) != 1 {
		return fmt.Errorf("want: driver SONAME")
	}
	p.api.Driver = w[0]
	return nil
}

func (p *parser) kind(w []string) error {
	if len(w) != 3 {
		return fmt.Errorf("want: kind CTYPE NAME ERROR")
	}
	p.api.Kinds = append(p.api.Kinds, Kind{w[0], w[1], w[2]})
	return nil
}

var scalars = []string{"u8", "i32", "u32", "i64", "u64"}

func (p *parser) scalar(w []string) error {
	if len(w) < 2 || !slices.Contains(scalars, w[0]) {
		return fmt.Errorf("want: type {%s} and C types", strings.Join(scalars, ","))
	}
	for _, ctype := range w[1:] {
		p.api.Scalars[ctype] = w[0]
	}
	return nil
}

func (p *parser) apiCall(w []string) error {
	// A result such as `void*` is one word; names contain no space.
	if len(w) < 4 {
		return fmt.Errorf("want: call RESULT NAME SINCE ANSWER [auto] [check] [worker] [recorded] [command CONSTANT]")
	}
	c := &Call{Result: w[0], Name: w[1], Since: w[2], Line: p.line, Part: p.part}
	if err := c.setAnswer(w[3]); err != nil {
		return err
	}
	for i := 4; i < len(w); i++ {
		switch w[i] {
		case "auto":
			c.Auto = true
		case "check":
			c.Check = true
		case "worker":
			c.Worker = true
		case "recorded":
			c.Recorded = true
		case "command":
			if i++; i == len(w) {
				return fmt.Errorf("command wants a constant")
			}
			c.Command = w[i]
		default:
			return fmt.Errorf("unknown word %q", w[i])
		}
	}
	p.api.Calls = append(p.api.Calls, c)
	c.Op, p.call = len(p.api.Calls), c
	return nil
}

func (c *Call) setAnswer(text string) error {
	if when, ok := strings.CutPrefix(text, "wait("); ok {
		c.Answer, c.When = Wait, strings.TrimSuffix(when, ")")
		return nil
	}
	c.Answer = Answer(text)
	if !slices.Contains([]Answer{Local, Cached, Early, Wait, Refused}, c.Answer) {
		return fmt.Errorf("unknown answer %q", text)
	}
	return nil
}

func (p *parser) message(w []string) error {
	if len(w) != 2 {
		return fmt.Errorf("want: message NAME ANSWER")
	}
	c := &Call{Name: w[0], Result: "void", Worker: true, Line: p.line, Part: p.part}
	p.api.Messages = append(p.api.Messages, c)
	c.Op, p.call = FirstMessage+len(p.api.Messages)-1, c
	return c.setAnswer(w[1])
}

func (p *parser) notice(w []string) error {
	if len(w) != 1 {
		return fmt.Errorf("want: notice NAME")
	}
	c := &Call{Name: w[0], Result: "void", Answer: Early, Line: p.line}
	p.api.Notices = append(p.api.Notices, c)
	c.Op, p.call = FirstNotice+len(p.api.Notices)-1, c
	return nil
}

func (p *parser) facts(w []string) error {
	if len(w) < 3 {
		return fmt.Errorf("want: facts CALL FORM and its constants")
	}
	size, err := strconv.Atoi(w[1])
	if w[1] != "text" && w[1] != "list" && (err != nil || size < 1 || size > 4096) {
		return fmt.Errorf("unknown form %q: want text, list or a size in bytes", w[1])
	}
	for _, param := range w[2:] {
		p.api.Facts = append(p.api.Facts, Fact{Call: w[0], Param: param, Text: w[1] == "text", Size: size})
	}
	return nil
}

func (p *parser) param(text string) (*Param, error) {
	declaration, treatment, annotated := strings.Cut(text, " : ")
	words := strings.Fields(declaration)
	if len(words) == 0 {
		return nil, fmt.Errorf("empty parameter")
	}
	param := &Param{Name: words[len(words)-1]}
	param.CType = strings.Join(words[:len(words)-1], " ")
	switch {
	case param.CType == "callback":
		param.Treatment = Callback
		return param, nil
	case param.CType == "+":
		param.Extra, param.CType = true, ""
	case param.CType == "" && annotated: // a field of a message
		param.Extra = true
	}
	if annotated {
		return param, p.treat(param, strings.Fields(treatment))
	}
	return param, p.infer(param)
}

// infer determines a parameter's treatment from its type and its neighbours.
func (p *parser) infer(param *Param) error {
	last := func(back int) Treatment {
		if n := len(p.call.Params) - back; n >= 0 {
			return p.call.Params[n].Treatment
		}
		return ""
	}
	for back := 1; back <= 2; back++ {
		if t := last(back); t == Query || t == List {
			param.Treatment = Follows
			return nil
		}
	}
	if kind := p.api.kind(param.CType); kind != nil {
		param.Treatment, param.Kind = Handle, kind.CType
		return nil
	}
	if scalar, ok := p.api.Scalars[param.CType]; ok {
		param.Treatment, param.Scalar = Value, scalar
		return nil
	}
	return fmt.Errorf("%s %s: its type does not say how it travels", param.CType, param.Name)
}

func (p *parser) treat(param *Param, w []string) error {
	if w[len(w)-1] == "null" {
		param.Null, w = true, w[:len(w)-1]
	}
	if len(w) > 1 && (w[0] == "bulk" || w[0] == "out") {
		w = append([]string{w[0] + " " + w[1]}, w[2:]...)
	}
	argument := ""
	if len(w) > 1 {
		argument = w[1]
	}
	param.Treatment = Treatment(w[0])
	switch param.Treatment {
	case Value, OutValue:
		return p.scalarOf(param, argument)
	case Handle:
		param.Kind = param.CType
		if argument != "" {
			param.Kind = argument
		}
		return p.kindOf(param)
	case "late":
		param.Late, param.Treatment, param.Kind = true, Handle, param.CType
		return p.kindOf(param)
	case "reads", "writes":
		param.Access, param.Treatment, param.Kind = w[0], Handle, param.CType
		return p.kindOf(param)
	case Handles:
		param.Kind, param.Len = pointee(param.CType), argument
		return p.kindOf(param)
	case New:
		param.Kind = pointee(param.CType)
		return p.kindOf(param)
	case Array, OutArray:
		if param.Len = argument; param.Extra || param.Treatment == OutArray {
			return p.scalarOf(param, argument)
		}
		return p.scalarOf(param, pointee(param.CType))
	case Bytes, List:
		param.Len = argument
	case String, Props, BulkIn, BulkOut, Count, Errcode, Query, OutBytes, Stays:
	default:
		return fmt.Errorf("%s: unknown treatment %q", param.Name, strings.Join(w, " "))
	}
	return nil
}

func (p *parser) kindOf(param *Param) error {
	if p.api.kind(param.Kind) == nil {
		return fmt.Errorf("%s: %q is no kind", param.Name, param.Kind)
	}
	return nil
}

func (p *parser) scalarOf(param *Param, name string) error {
	if slices.Contains(scalars, name) {
		param.Scalar = name
		return nil
	}
	scalar, ok := p.api.Scalars[name]
	if !ok {
		return fmt.Errorf("%s: %q is no scalar type", param.Name, name)
	}
	param.Scalar = scalar
	return nil
}

// complete checks what depends on the whole description.
func (a *API) complete() error {
	if a.Name == "" || len(a.Calls) == 0 {
		return fmt.Errorf("a description needs an api line and calls")
	}
	seen := map[string]int{}
	for _, c := range slices.Concat(a.Calls, a.Messages, a.Notices) {
		if line := seen[c.Name]; line != 0 {
			return fmt.Errorf("line %d: %s is described on line %d already", c.Line, c.Name, line)
		}
		seen[c.Name] = c.Line
		if err := a.completeCall(c); err != nil {
			return fmt.Errorf("line %d: %s: %w", c.Line, c.Name, err)
		}
	}
	for _, f := range a.Facts {
		isMessage := slices.ContainsFunc(a.Messages, func(m *Call) bool { return m.Name == f.Call })
		if c := a.call(f.Call); !isMessage && (c == nil || c.Answer != Cached) {
			return fmt.Errorf("facts %s: no message, and no call that is answered from a cache", f.Call)
		}
	}
	return nil
}

func (a *API) completeCall(c *Call) error {
	has := func(name string) bool { return c.param(name) != nil }
	if c.When != "" && !has(c.When) {
		return fmt.Errorf("it has no parameter %q to wait for", c.When)
	}
	if c.Auto && (c.Answer != Early || c.Command == "") {
		return fmt.Errorf("auto is for early commands of a queue")
	}
	for _, p := range c.Params {
		if size := c.param(p.Len); p.Treatment == Bytes && size != nil && size.Treatment == Value {
			size.Treatment = Count // the count word of the bytes gives it
		}
		if p.Len != "" && p.Treatment != List && !isNumber(p.Len) && !has(p.Len) && !p.Extra && p.Treatment != OutArray {
			return fmt.Errorf("%s: it has no parameter %q to count by", p.Name, p.Len)
		}
	}
	return nil
}

func (c *Call) param(name string) *Param {
	for _, p := range c.Params {
		if p.Name == name && name != "" {
			return p
		}
	}
	return nil
}

func isNumber(s string) bool { return strings.Trim(s, "0123456789") == "" }
