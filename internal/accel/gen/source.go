package gen

import (
	"bytes"
	"fmt"
	"go/format"
)

// source collects the text of a generated file.
type source struct{ bytes.Buffer }

func (s *source) p(form string, args ...any) { fmt.Fprintf(s, form+"\n", args...) }

func (s *source) gofmt(name string) ([]byte, error) {
	out, err := format.Source(s.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", name, err, s.Bytes())
	}
	return out, nil
}

func structName(c *Call, role string) string { return role + camel(c.Name) }

// goStruct writes a struct, its decoder and its encoder.
func (s *source) goStruct(c *Call, role, doc string, fields []*Param) {
	name := structName(c, role)
	s.goFields(name, doc, fields)
	s.decoder(name, fields)
	s.encoder(name, fields)
}

func (s *source) goFields(name, doc string, fields []*Param) {
	s.p("// %s is %s.\ntype %s struct {", name, doc, name)
	for _, p := range fields {
		s.p("%s %s // %s", camel(p.Name), p.goType(), p.describe())
	}
	s.p("}\n")
}

func (s *source) decoder(name string, fields []*Param) {
	s.p("func (a *%s) decode(body []byte) error {\n\td := wire.NewDecoder(body)", name)
	for _, p := range fields {
		s.p("%s", p.goDecode())
	}
	s.p("return d.Done()\n}\n")
}

func (s *source) encoder(name string, fields []*Param) {
	s.p("func (a *%s) encode(buf []byte) []byte {\n\te := wire.NewEncoder(buf)", name)
	for _, p := range fields {
		s.p("%s", p.goEncode())
	}
	s.p("return e.Body()\n}\n")
}
