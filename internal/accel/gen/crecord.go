package gen

import (
	"fmt"
	"strings"
)

// recorders writes the functions that record a call around its next implementation: this library's
// entry point, or the driver's function behind a loader's layer.
func (w *cWriter) recorders() {
	w.p("/* zz_record.c: records each call around its next implementation. Layer: entry. */")
	w.p("#include \"entry.h\"\n\n#include <string.h>\n")
	for _, c := range w.api.Calls {
		w.recorder(c)
	}
	w.p("void record_overlay(struct %s *table)\n{", w.api.TableStruct)
	for _, c := range w.api.Calls {
		w.p("\tif (table->%s)\n\t\ttable->%s = (cl_api_%s)record_%s;", c.Name, c.Name, c.Name, c.Name)
	}
	w.p("}")
}

func (w *cWriter) recordHeader() {
	w.p("/* zz_record.h: values recorded of calls in addition to their times, written by hand. Layer: entry. */")
	w.p("#ifndef OUTBOARD_ZZ_RECORD_H\n#define OUTBOARD_ZZ_RECORD_H\n\n#include \"api.h\"\n#include \"record.h\"\n")
	w.p("/* Replaces the recorded entries of a dispatch table that has them. */\nvoid record_overlay(struct %s *);\n", w.api.TableStruct)
	w.p("/* Called after the call has returned, when it is recorded. */")
	for _, c := range w.api.Calls {
		if c.Recorded {
			w.p("%s;", c.notePrototype())
		}
	}
	w.p("\n#endif")
}

func (c *Call) notePrototype() string {
	params := "struct record_call *call"
	if c.Result != "void" {
		params += ", " + c.Result + " result"
	}
	if p := c.cParams(); p != "void" {
		params += ", " + p
	}
	return fmt.Sprintf("void note_%s(%s)", c.Name, params)
}

// recorder writes the function that records one call.
func (w *cWriter) recorder(c *Call) {
	event := c.pointerTo("cl_event")
	// A command without a wait list is a marker, whose event is its result: NULL is an error.
	own := event != nil
	if _, list := c.waitList(); list == "NULL" {
		own = false
	}
	w.p("static %s API_CALL record_%s(%s)\n{\n\tstruct record_call call;", c.Result, c.Name, c.cParams())
	w.p("\tint recorded = record_begin(&call, %d);", c.Op)
	arguments := c.arguments()
	if own {
		w.p("\tcl_event own = NULL, *out = recorded ? entry_event(%s, %s, &own) : %s;", c.Params[0].Name, event.Name, event.Name)
		arguments = strings.TrimSuffix(arguments, event.Name)
		if !strings.HasSuffix(c.arguments(), event.Name) {
			arguments = strings.Replace(c.arguments(), ", "+event.Name+", ", ", out, ", 1)
		} else {
			arguments += "out"
		}
	}
	w.p("\tuint64_t before = entry_without ? entry_serial() : 0;")
	if c.Result == "void" {
		w.p("\tentry_next->%s(%s);", c.Name, arguments)
	} else {
		w.p("\t%s result = entry_next->%s(%s);", c.Result, c.Name, arguments)
	}
	kind := "0"
	switch {
	case strings.HasPrefix(c.Name, w.api.Prefix+"Create"):
		kind = "CALL_CREATES"
	case c.Answer == Cached, c.Answer == Wait && c.When == "":
		kind = "CALL_QUERIES"
	}
	w.p("\tif (entry_without)\n\t\tentry_sent(before, %s);", kind)
	w.p("\tif (!recorded)\n\t\t%s\n\trecord_returned(&call);", returns(c))
	w.details(c, event)
	count, list := c.waitList()
	w.p("\trecord_end(&call, (uint32_t)%s, (const void *const *)%s);", count, list)
	switch {
	case own:
		w.p("\tentry_command(&call, %s, own);", event.Name)
	case event != nil:
		w.p("\tentry_command(&call, %s, NULL);", event.Name)
	}
	w.p("\t%s\n}\n", returns(c))
}

func returns(c *Call) string {
	if c.Result == "void" {
		return "return;"
	}
	return "return result;"
}

// details writes the code that records properties of a call beside its times.
func (w *cWriter) details(c *Call, event *Param) {
	switch {
	case c.Result == "cl_int":
		w.p("\tif (result < 0)\n\t\tcall.head.flags |= RECORD_FAILED;")
	case strings.HasPrefix(c.Result, "cl_"), c.Result == "void*":
		w.p("\tif (!result)\n\t\tcall.head.flags |= RECORD_FAILED;")
	}
	for _, p := range c.Params {
		switch {
		case p.CType == "cl_command_queue" && p == c.Params[0]:
			w.p("\tcall.queue = (uintptr_t)%s;", p.Name)
		case p.CType == "cl_event" && c.OnWire():
			w.p("\tcall.event = (uintptr_t)%s;", p.Name)
		case p.CType == "cl_bool" && strings.HasPrefix(p.Name, "blocking"):
			w.p("\tif (%s)\n\t\tcall.head.flags |= RECORD_BLOCKING;", p.Name)
		case p.Access == "writes":
			w.p("\tentry_written(&call, %s);", p.Name)
		}
	}
	if object := c.recordedObject(w.api); object != "" {
		w.p("\tcall.object = (uintptr_t)%s;", object)
	}
	if name := c.query(); name != "" {
		w.p("\tcall.detail = %s;", name)
	}
	switch c.Result {
	case "cl_event":
		w.p("\tcall.event = (uintptr_t)result;")
	case "cl_command_queue":
		w.p("\tcall.queue = (uintptr_t)result;")
	}
	if event != nil {
		w.p("\tif (%s && !(call.head.flags & RECORD_FAILED))\n\t\tcall.event = (uintptr_t)*%s;", event.Name, event.Name)
	}
	if c.Answer == Cached && c.query() != "" {
		w.p("\tif (entry_sizes) {\n\t\tcall.forward = %d;\n\t\tcall.backward = entry_answer(%s);\n\t}", 32+8*len(c.In(w.api)), c.answered())
	}
	if size := c.wireSize(w.api); size != "" {
		w.p("\tif (entry_sizes) {\n\t\tcall.forward = %s;", size)
		if c.Waits() {
			w.p("\t\tcall.backward = %d;", 32+8*len(c.Out()))
		}
		w.p("\t}")
	}
	if c.Recorded {
		args := []string{"&call"}
		if c.Result != "void" {
			args = append(args, "result")
		}
		if all := c.arguments(); all != "" {
			args = append(args, all)
		}
		w.p("\tnote_%s(%s);", c.Name, strings.Join(args, ", "))
	}
}

// recordedObject returns the object whose references a call changes: the object that it creates,
// retains or releases; "" for other calls.
func (c *Call) recordedObject(api *API) string {
	switch {
	case strings.Contains(c.Name, "Create") && api.kind(c.Result) != nil:
		return "result"
	case len(c.Params) == 1 && c.Params[0].Treatment == Handle && (strings.Contains(c.Name, "Retain") || strings.Contains(c.Name, "Release")):
		return c.Params[0].Name
	}
	return ""
}

// query returns the parameter that selects the queried value; "" for other calls.
func (c *Call) query() string {
	for _, p := range c.Params {
		if strings.HasSuffix(p.CType, "_info") && c.answered() != "" {
			return p.Name
		}
	}
	return ""
}

// answered returns the parameters of a query's answer: size, value and size_ret; "" for other
// calls.
func (c *Call) answered() string {
	for i, p := range c.Params {
		if p.Treatment == Query && i+2 < len(c.Params) {
			return p.Name + ", " + c.Params[i+1].Name + ", " + c.Params[i+2].Name
		}
	}
	return ""
}

// wireSize returns a C expression for the size of the request, without the fields that only the
// wire has and without bulk; "" for a call that is not sent.
func (c *Call) wireSize(api *API) string {
	if c.Answer == Local || c.Answer == Refused || c.Answer == Cached {
		return ""
	}
	words := 0
	var sizes []string
	for _, p := range c.In(api) {
		switch {
		case p.Treatment == Props:
			sizes = append(sizes, fmt.Sprintf("entry_list(%s)", p.Name))
		case p.Treatment == String:
			sizes = append(sizes, fmt.Sprintf("wire_array(%s, %s ? strlen(%s) : 0, 1)", p.Name, p.Name, p.Name))
		case p.Extra && (p.Treatment == Bytes || p.Treatment == Array):
			words++ // the count alone; a note adds the rest
		default:
			if ptr, _, element := p.cArray(); element > 0 {
				sizes = append(sizes, fmt.Sprintf("wire_array(%s, %s, %d)", ptr, p.Len, element))
			} else {
				words++
			}
		}
	}
	return strings.Join(append([]string{fmt.Sprint(32 + 8*words)}, sizes...), " + ")
}

// pointerTo returns the parameter through which the call returns a handle of a type.
func (c *Call) pointerTo(ctype string) *Param {
	if len(c.Params) == 0 || c.Params[0].CType != "cl_command_queue" {
		return nil
	}
	for _, p := range c.Params {
		if p.CType == ctype+"*" && !p.Extra {
			return p
		}
	}
	return nil
}

// waitList returns the C expressions for the call's list of events.
func (c *Call) waitList() (count, list string) {
	for i, p := range c.Params {
		if p.CType == "const cl_event*" && i > 0 {
			return c.Params[i-1].Name, p.Name
		}
	}
	return "0", "NULL"
}
