package gen

import (
	"fmt"
	"strings"
)

// cPrototype is a function with the call's own C signature. Callbacks have
// the type PFN_call_name, which the API's own header api.h takes from the
// installed headers' prototypes.
func (a *API) cPrototype(c *Call, name string) string {
	return fmt.Sprintf("%s %s(%s)", c.Result, name, a.cParams(c))
}

func (a *API) cCheckPrototype(c *Call) string {
	return fmt.Sprintf("int32_t check_%s(%s)", c.Name, a.cParams(c))
}

func (a *API) cParams(c *Call) string {
	var params []string
	for _, p := range c.Params {
		switch {
		case p.Extra:
		case p.Treatment == Callback:
			params = append(params, fmt.Sprintf("PFN_%s %s", c.Name, p.Name))
		default:
			params = append(params, p.CType+" "+p.Name)
		}
	}
	if len(params) == 0 {
		return "void"
	}
	return strings.Join(params, ", ")
}

func (c *Call) arguments() string {
	var names []string
	for _, p := range c.Params {
		if !p.Extra {
			names = append(names, p.Name)
		}
	}
	return strings.Join(names, ", ")
}

// failure is the statement that returns an error in the call's own way.
func (a *API) failure(c *Call, status string) string {
	if c.Result == "cl_int" || c.Result == "int" {
		return "return " + status + ";"
	}
	for _, p := range c.Params {
		if p.Treatment == Errcode {
			return fmt.Sprintf("{ if (%s) *%s = %s; return NULL; }", p.Name, p.Name, status)
		}
	}
	if c.Result == "void" {
		return "return;"
	}
	return "return NULL;"
}

func (a *API) cEntries(s *source, table []TableEntry) {
	s.p("/* zz_entry.c: the entry points that the loader calls, and the dispatch table. Layer: calls. */")
	s.p("#include \"zz_calls.h\"\n")
	for _, c := range a.Calls {
		a.cEntry(s, c)
	}
	a.cRefusals(s)
	s.p("const struct %s api_dispatch = {", a.TableStruct)
	for _, e := range table {
		if a.call(e.Name) != nil {
			s.p("\t.%s = (cl_api_%s)entry_%s,", e.Name, e.Name, e.Name)
		} else {
			s.p("\t.%s = (cl_api_%s)(void (*)(void))refuse_%s,", e.Name, e.Name, e.refusal())
		}
	}
	s.p("};")
}

// cRefusals writes the table's entries for functions of other extensions.
func (a *API) cRefusals(s *source) {
	s.p("static int32_t refuse_status(void)\n{\n\treturn api_refusal;\n}\n")
	s.p("static void *refuse_handle(void)\n{\n\treturn NULL;\n}\n")
}

func (e TableEntry) refusal() string {
	if e.Result == "cl_int" {
		return "status"
	}
	return "handle"
}

// cEntry writes the function that the loader calls: the checks that every call needs, then the call itself.
func (a *API) cEntry(s *source, c *Call) {
	s.p("static %s API_CALL entry_%s(%s)\n{", c.Result, c.Name, a.cParams(c))
	if c.Answer == Refused {
		for _, p := range c.Params {
			s.p("\t(void)%s;", p.Name)
		}
		s.p("\t%s\n}\n", a.failure(c, "api_refusal"))
		return
	}
	s.p("\tint32_t status = library_enter(&api_dispatch);\n\tif (status != 0)\n\t\t%s", a.failure(c, "status"))
	for _, p := range c.Params {
		if p.Treatment != Handle || p.Extra || p.Late {
			continue
		}
		absent := ""
		if p.Null {
			absent = p.Name + " && "
		}
		kind := a.kind(p.Kind)
		s.p("\tif (%s!api_valid(%s, KIND_%s))\n\t\t%s", absent, p.Name, strings.ToUpper(kind.Name), a.failure(c, kind.Error))
	}
	switch {
	case c.Auto:
		a.cAuto(s, c)
	case c.Result == "void":
		s.p("\tob_%s(%s);\n}\n", c.Name, c.arguments())
	default:
		s.p("\treturn ob_%s(%s);\n}\n", c.Name, c.arguments())
	}
}

// cAuto writes a command of a queue: its objects are made present on the
// queue's link, its wait list is resolved there, its event is created.
func (a *API) cAuto(s *source, c *Call) {
	if c.Check {
		s.p("\tstatus = check_%s(%s);\n\tif (status != 0)\n\t\treturn status;", c.Name, c.arguments())
	}
	var count, list, event string
	for _, p := range c.Params {
		switch {
		case p.Treatment == Handles && a.kind(p.Kind).Name == "event":
			list, count = p.Name, p.Len
		case p.Treatment == New:
			event = p.Name
		}
	}
	s.p("\tstruct command command;\n\tstatus = command_begin(&command, %s, %s, %s, %s, %s);", c.Params[0].Name, c.Command, count, list, event)
	s.p("\tif (status != 0)\n\t\treturn status;")
	for _, p := range c.Params {
		if p.Access != "" {
			s.p("\tif (status == 0)\n\t\tstatus = command_%s(&command, %s);", p.Access, p.Name)
		}
	}
	args := []string{"command.session", "NULL"}
	for _, p := range c.In(a) {
		args = append(args, p.cAutoArgument()...)
	}
	s.p("\tif (status == 0)\n\t\tstatus = send_%s(%s);", c.Name, strings.Join(args, ", "))
	s.p("\treturn command_end(&command, status);\n}\n")
}

func (p *Param) cAutoArgument() []string {
	switch p.Treatment {
	case Handle:
		return []string{fmt.Sprintf("api_id(%s)", p.Name)}
	case Handles:
		return []string{"command.waits", "command.wait_count"}
	case Array:
		return []string{"(const uint64_t *)" + p.Name, p.Len}
	case Bytes:
		return []string{p.Name, p.Len}
	case New:
		return []string{"command.event"}
	}
	return []string{p.Name}
}
