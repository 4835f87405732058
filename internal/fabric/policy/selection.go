package policy

import (
	"maps"
	"strings"

	"github.com/google/cel-go/common/ast"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// A selection is the part of a request that expressions read: fields of the message, by number. Nil
// selects the whole message.
type selection map[protowire.Number]bool

// selectionOf returns which fields of d an expression reads. Any use of the request other than
// request.FIELD reads the whole message.
func selectionOf(expr ast.Expr, d protoreflect.MessageDescriptor) selection {
	selected := selection{}
	uses, selects := 0, 0
	ast.PostOrderVisit(expr, ast.NewExprVisitor(func(e ast.Expr) {
		switch {
		case isRequest(e):
			uses++
		case e.Kind() == ast.SelectKind && isRequest(e.AsSelect().Operand()):
			if f := d.Fields().ByName(protoreflect.Name(e.AsSelect().FieldName())); f != nil {
				selected.add(f)
				selects++
			}
		}
	}))
	if uses != selects {
		return nil
	}
	return selected
}

func isRequest(e ast.Expr) bool {
	return e.Kind() == ast.IdentKind && strings.TrimPrefix(e.AsIdent(), ".") == "request"
}

// add adds a field, with all of its oneof: a later member unsets an earlier one.
func (s selection) add(f protoreflect.FieldDescriptor) {
	s[f.Number()] = true
	if oneof := f.ContainingOneof(); oneof != nil {
		for i := range oneof.Fields().Len() {
			s[oneof.Fields().Get(i).Number()] = true
		}
	}
}

// union returns the fields of both selections. It changes neither.
func (s selection) union(other selection) selection {
	if s == nil || other == nil {
		return nil
	}
	both := maps.Clone(s)
	maps.Copy(both, other)
	return both
}

// unmarshal decodes the selected fields. The other fields are skipped without reading their bytes,
// and only their framing is checked: the callee decodes them.
func (s selection) unmarshal(data []byte, m proto.Message) error {
	if s == nil {
		return proto.Unmarshal(data, m)
	}
	part, err := s.cut(data)
	if err != nil {
		return err
	}
	return proto.UnmarshalOptions{AllowPartial: true}.Unmarshal(part, m)
}

// cut copies the selected fields of an encoded message.
func (s selection) cut(data []byte) ([]byte, error) {
	var part []byte
	for len(data) > 0 {
		number, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return nil, protowire.ParseError(n)
		}
		size := protowire.ConsumeFieldValue(number, kind, data[n:])
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		if s[number] {
			part = append(part, data[:n+size]...)
		}
		data = data[n+size:]
	}
	return part, nil
}
