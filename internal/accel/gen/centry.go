package gen

import (
	"fmt"
	"strings"
)

// cPrototype returns the prototype of a function with the call's own C signature. Callbacks have
// the type PFN_call_name, which the hand-written header api.h takes from the installed headers'
// prototypes.
func (c *Call) cPrototype(name string) string {
	return fmt.Sprintf("%s %s(%s)", c.Result, name, c.cParams())
}

func (c *Call) cCheckPrototype() string {
	return fmt.Sprintf("int32_t check_%s(%s)", c.Name, c.cParams())
}

func (c *Call) cParams() string {
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

// cFailure returns the statement that returns an error in the call's own way.
func (c *Call) cFailure(status string) string {
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

func (w *cWriter) entries(table []TableEntry) {
	w.p("/* zz_entry.c: the entry points that the loader calls, and the dispatch table. Layer: calls. */")
	w.p("#include \"zz_calls.h\"\n")
	for _, c := range w.api.Calls {
		w.entry(c)
	}
	w.refusals()
	w.p("const struct %s api_dispatch = {", w.api.TableStruct)
	for _, e := range table {
		if w.api.call(e.Name) != nil {
			w.p("\t.%s = (cl_api_%s)entry_%s,", e.Name, e.Name, e.Name)
		} else {
			w.p("\t.%s = (cl_api_%s)(void (*)(void))refuse_%s,", e.Name, e.Name, e.refusal())
		}
	}
	w.p("};")
}

// refusals writes the table's entries for functions of other extensions.
func (w *cWriter) refusals() {
	w.p("static int32_t refuse_status(void)\n{\n\treturn api_refusal;\n}\n")
	w.p("static void *refuse_handle(void)\n{\n\treturn NULL;\n}\n")
}

func (e TableEntry) refusal() string {
	if e.Result == "cl_int" {
		return "status"
	}
	return "handle"
}

// entry writes the function that the loader calls: the checks that every call needs, then the call
// itself.
func (w *cWriter) entry(c *Call) {
	w.p("static %s API_CALL entry_%s(%s)\n{", c.Result, c.Name, c.cParams())
	if c.Answer == Refused {
		for _, p := range c.Params {
			w.p("\t(void)%s;", p.Name)
		}
	}
	w.p("\tint32_t status = library_enter(&api_dispatch);\n\tif (status != 0)\n\t\t%s", c.cFailure("status"))
	for _, p := range c.Params {
		if p.Treatment != Handle || p.Extra || p.Late {
			continue
		}
		absent := ""
		if p.Null {
			absent = p.Name + " && "
		}
		kind := w.api.kind(p.Kind)
		w.p("\tif (%s!api_valid(%s, KIND_%s))\n\t\t%s", absent, p.Name, strings.ToUpper(kind.Name), c.cFailure(kind.Error))
	}
	switch {
	case c.Answer == Refused:
		w.p("\t%s\n}\n", c.cFailure("api_refusal"))
	case c.Auto:
		w.auto(c)
	case c.Result == "void":
		w.p("\tob_%s(%s);\n}\n", c.Name, c.arguments())
	default:
		w.p("\treturn ob_%s(%s);\n}\n", c.Name, c.arguments())
	}
}

// auto writes the entry point of a command of a queue: it makes the command's objects present on
// the queue's link, resolves its wait list there and creates its event.
func (w *cWriter) auto(c *Call) {
	if c.Check {
		w.p("\tstatus = check_%s(%s);\n\tif (status != 0)\n\t\treturn status;", c.Name, c.arguments())
	}
	var count, list, event string
	for _, p := range c.Params {
		switch {
		case p.Treatment == Handles && w.api.kind(p.Kind).Name == "event":
			list, count = p.Name, p.Len
		case p.Treatment == New:
			event = p.Name
		}
	}
	w.p("\tstruct command command;\n\tstatus = command_begin(&command, %s, %s, %s, %s, %s);", c.Params[0].Name, c.Command, count, list, event)
	w.p("\tif (status != 0)\n\t\treturn status;")
	for _, p := range c.Params {
		if p.Access != "" {
			w.p("\tif (status == 0)\n\t\tstatus = command_%s(&command, %s);", p.Access, p.Name)
		}
	}
	args := []string{"command.session", "NULL"}
	for _, p := range c.In(w.api) {
		args = append(args, p.cAutoArgument()...)
	}
	w.p("\tif (status == 0)\n\t\tstatus = send_%s(%s);", c.Name, strings.Join(args, ", "))
	w.p("\treturn command_end(&command, status);\n}\n")
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
