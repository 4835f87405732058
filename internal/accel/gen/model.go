package gen

import "strings"

// API is a parsed description.
type API struct {
	Name, Prefix string
	Headers      []string
	// TableHeader and TableStruct name the loader's dispatch table.
	TableHeader, TableStruct string
	Driver                   string
	Kinds                    []Kind
	// Scalars maps a C type to u8, i32, u32, i64 or u64.
	Scalars  map[string]string
	Calls    []*Call
	Messages []*Call
	Notices  []*Call
	Facts    []Fact
}

// A Kind is a kind of object that has handles.
type Kind struct{ CType, Name, Error string }

// A Fact is a query that the worker answers in advance, or what the worker offers with a message.
type Fact struct {
	Call, Param string // Call may be a message
	// Text reports whether the value is a NUL-terminated string.
	Text bool
	// Size is the value's size in bytes; 0 for texts and lists.
	Size int
}

// A Call is one function of the API, or one message of the protocol.
type Call struct {
	Name, Result, Since string
	Answer              Answer
	// When is the parameter that decides whether wait(PARAM) waits.
	When                string
	Auto, Check, Worker bool
	// Recorded reports that a hand-written function adds to the call's record.
	Recorded bool
	Command  string
	Params   []*Param
	Line     int
	// Op is the number on the wire.
	Op int
	// Part is the field of the worker whose value executes the call; empty for the worker itself.
	Part string
}

// An Answer determines which side answers a call, and when.
type Answer string

// The answers.
const (
	Local   Answer = "local"
	Cached  Answer = "cached"
	Early   Answer = "early"
	Wait    Answer = "wait"
	Refused Answer = "refused"
)

// OnWire reports whether the call ever reaches a worker.
func (c *Call) OnWire() bool { return c.Answer != Local && c.Answer != Refused }

// Streams reports whether the call can be sent without waiting.
func (c *Call) Streams() bool { return c.Answer == Early || c.When != "" }

// Waits reports whether the call can wait for a reply.
func (c *Call) Waits() bool { return c.Answer == Wait || c.Answer == Cached }

// A Treatment determines how a parameter is sent.
type Treatment string

// The treatments.
const (
	Value    Treatment = "value"
	Handle   Treatment = "handle"
	Handles  Treatment = "handles"
	Array    Treatment = "array"
	Bytes    Treatment = "bytes"
	String   Treatment = "string"
	Props    Treatment = "props"
	BulkIn   Treatment = "bulk in"
	BulkOut  Treatment = "bulk out"
	Count    Treatment = "count"
	New      Treatment = "new"
	Errcode  Treatment = "errcode"
	Query    Treatment = "query"
	List     Treatment = "list"
	OutValue Treatment = "out value"
	OutBytes Treatment = "out bytes"
	OutArray Treatment = "out array"
	Stays    Treatment = "local"
	Follows  Treatment = "follows"
	Callback Treatment = "callback"
)

// A Param is a parameter of a call or a field of a message.
type Param struct {
	CType, Name string
	Treatment   Treatment
	// Scalar is the wire type of a value or of an array's elements.
	Scalar string
	// Kind is the object kind of handles.
	Kind string
	// Len is the parameter or number that gives the number of elements.
	Len string
	// Null reports that NULL has a meaning.
	Null bool
	// Access is reads or writes, for objects that a command uses.
	Access string
	// Late reports whether the function itself checks the handle: another error precedes that of an
	// invalid handle.
	Late bool
	// Extra reports that only the wire has the parameter.
	Extra bool
}

// In reports whether the parameter is a field of the request.
func (p *Param) In() bool {
	switch p.Treatment {
	case Value, Handle, Handles, Array, Bytes, String, Props, New:
		return true
	}
	return false
}

// Out reports whether the parameter is a field of the reply.
func (p *Param) Out() bool {
	switch p.Treatment {
	case OutValue, OutBytes, OutArray, Query, List:
		return true
	}
	return false
}

// In returns the fields of the request, the id of a new object last.
func (c *Call) In(api *API) []*Param {
	var in []*Param
	for _, p := range c.Params {
		if p.In() {
			in = append(in, p)
		}
	}
	if kind := api.kind(c.Result); kind != nil {
		in = append(in, &Param{CType: c.Result, Name: "result", Treatment: New, Kind: kind.CType})
	}
	return in
}

// Out returns the fields of the reply.
func (c *Call) Out() []*Param {
	var out []*Param
	for _, p := range c.Params {
		if p.Out() {
			out = append(out, p)
		}
	}
	return out
}

// Bulk returns the parameter with that treatment, or nil.
func (c *Call) Bulk(t Treatment) *Param {
	for _, p := range c.Params {
		if p.Treatment == t {
			return p
		}
	}
	return nil
}

func (a *API) kind(ctype string) *Kind {
	for i := range a.Kinds {
		if a.Kinds[i].CType == ctype {
			return &a.Kinds[i]
		}
	}
	return nil
}

func (a *API) call(name string) *Call {
	for _, c := range a.Calls {
		if c.Name == name {
			return c
		}
	}
	return nil
}

// wire returns every call and message that a worker receives.
func (a *API) wire() []*Call {
	var calls []*Call
	for _, c := range a.Calls {
		if c.OnWire() {
			calls = append(calls, c)
		}
	}
	return append(calls, a.Messages...)
}

// camel converts snake_case and clCamel to an exported Go name.
func camel(name string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(name, "_") {
		if part != "" {
			b.WriteString(strings.ToUpper(part[:1]) + part[1:])
		}
	}
	return b.String()
}

// pointee strips const and one pointer from a C type.
func pointee(ctype string) string {
	return strings.TrimSpace(strings.TrimSuffix(strings.TrimPrefix(ctype, "const "), "*"))
}
