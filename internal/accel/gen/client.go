package gen

import (
	"fmt"
	"slices"
)

// Client generates the numbers and bodies of some calls, messages and notices, for a client in Go.
func (a *API) Client(pkg string, names []string) ([]byte, error) {
	s := &source{}
	s.p(marker+"package %s\n", a.Name, pkg)
	s.p("import \"github.com/outboard-run/outboard/internal/wire\"\n")
	s.p("// text is a C string that may be absent.\ntype text struct { value string; present bool }\n")
	calls, err := a.named(names)
	if err != nil {
		return nil, err
	}
	s.p("// The numbers of calls, messages and notices on the wire.\nconst (")
	for _, c := range calls {
		s.p("op%s uint16 = %#x", camel(c.Name), c.Op)
	}
	s.p(")\n\n// The kinds of objects.\nconst (")
	for i, k := range a.Kinds {
		s.p("kind%s uint32 = %d", camel(k.Name), i+1)
	}
	s.p(")\n")
	for _, c := range calls {
		if slices.Contains(a.Notices, c) {
			s.goHalf(c, "args", "the fields of "+c.Name+" as they travel", c.In(a), (*source).decoder)
			continue
		}
		if len(c.In(a)) > 0 {
			s.goHalf(c, "args", "the fields of "+c.Name+" as they travel", c.In(a), (*source).encoder)
		}
		if len(c.Out()) > 0 {
			s.goHalf(c, "reply", "the answer to "+c.Name, c.Out(), (*source).decoder)
		}
	}
	return s.gofmt("zz_messages.go")
}

// named finds calls, messages and notices by their names.
func (a *API) named(names []string) ([]*Call, error) {
	all := append(a.wire(), a.Notices...)
	var found []*Call
	for _, name := range names {
		i := slices.IndexFunc(all, func(c *Call) bool { return c.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("%s: nothing of that name reaches the wire", name)
		}
		found = append(found, all[i])
	}
	return found, nil
}

// goHalf writes a struct that is sent in one direction only.
func (s *source) goHalf(c *Call, role, doc string, fields []*Param, half func(*source, string, []*Param)) {
	name := structName(c, role)
	s.goFields(name, doc, fields)
	half(s, name, fields)
}
