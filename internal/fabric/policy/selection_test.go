package policy

import (
	"maps"
	"slices"
	"testing"

	"github.com/google/cel-go/cel"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// TestSelection holds which fields of a request are decoded for an expression.
func TestSelection(t *testing.T) {
	env, err := cel.NewEnv(cel.OptionalTypes())
	if err != nil {
		t.Fatal(err)
	}
	order := message(t, "Order", "").Descriptor()
	for text, want := range map[string][]protowire.Number{
		`request.user == "ann"`:                        {1},
		`request.user == "ann" && .request.total > 7`:  {1, 2},
		`has(request.address) && request.items[0].sku`: {3, 4},
		`request.items.exists(i, i.price > 3)`:         {3},
		`tenant == "gold"`:                             {},
		// The whole message, or what can't be known.
		`request == other`:          nil,
		`request.?user.orValue("")`: nil,
		`[request][0].user`:         nil,
		`request["user"]`:           nil,
		`request.nothing`:           nil,
		`size(request.user) > 0 ? request.total : count(request)`: nil,
	} {
		tree, issues := env.Parse(text)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		s := selectionOf(tree.NativeRep().Expr(), order)
		got := slices.Sorted(maps.Keys(s))
		if (s == nil) != (want == nil) || !slices.Equal(got, want) {
			t.Errorf("%s: got %v, want %v", text, s, want)
		}
	}
}

// oneof is a message with two members of a oneof and a required field.
func oneof(t testing.TB) *dynamicpb.Message {
	t.Helper()
	field := func(name string, number int32, label descriptorpb.FieldDescriptorProto_Label, one *int32) *descriptorpb.FieldDescriptorProto {
		return &descriptorpb.FieldDescriptorProto{
			Name: &name, Number: &number, Label: label.Enum(), Type: descriptorpb.FieldDescriptorProto_TYPE_INT64.Enum(), OneofIndex: one,
		}
	}
	first, optional := int32(0), descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("oneof.proto"), Syntax: new("proto2"),
		MessageType: []*descriptorpb.DescriptorProto{{
			Name: new("Pay"), OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: new("by")}},
			Field: []*descriptorpb.FieldDescriptorProto{
				field("card", 1, optional, &first), field("cash", 2, optional, &first),
				field("id", 3, descriptorpb.FieldDescriptorProto_LABEL_REQUIRED, nil),
			},
		}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return dynamicpb.NewMessage(file.Messages().Get(0))
}

// A member of a oneof is unset by a later one, whichever of them an expression reads; a required field
// that no expression reads may be missing.
func TestSelectionOfOneof(t *testing.T) {
	m := oneof(t)
	card := m.Descriptor().Fields().ByName("card")
	s := selection{}
	s.add(card)
	data := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7)
	data = protowire.AppendVarint(protowire.AppendTag(data, 2, protowire.VarintType), 8)
	if err := s.unmarshal(data, m); err != nil || m.Has(card) {
		t.Errorf("the first member is set: %v, %v", m.Has(card), err)
	}
}

// FuzzSelection: what is decoded of a part of a message is what all of it has there.
func FuzzSelection(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add(encoded(f, "Order", `user: "ann" total: 7 items { sku: "s" price: 3 } placed { seconds: 60 } state: PAID`), uint16(0b1010))
	f.Add([]byte{0x0b, 0x0c, 0x0a, 0x80}, uint16(0xffff))
	f.Add([]byte{0x0a, 1, 'a', 0x0a, 1, 'b', 0x22, 2, 0x0a, 0}, uint16(0b10010))
	f.Fuzz(func(t *testing.T, data []byte, numbers uint16) {
		whole, part := message(t, "Order", ""), message(t, "Order", "")
		if proto.Unmarshal(data, whole) != nil {
			_ = selection{1: true}.unmarshal(data, part) // it may be well: what is wrong was skipped
			return
		}
		s := selection{}
		for fields, i := whole.Descriptor().Fields(), 0; i < fields.Len(); i++ {
			if f := fields.Get(i); numbers>>f.Number()&1 == 1 {
				s.add(f)
			} else {
				whole.Clear(f)
			}
		}
		whole.SetUnknown(nil)
		if err := s.unmarshal(data, part); err != nil {
			t.Fatal(err)
		}
		part.SetUnknown(nil)
		if diff := cmp.Diff(whole.String(), part.String()); diff != "" {
			t.Error(diff)
		}
	})
}

// BenchmarkSelection is a condition on one field of a request of 500 KB: the rest is skipped.
func BenchmarkSelection(b *testing.B) {
	m := message(b, "Order", `user: "ann"`)
	items := m.Mutable(m.Descriptor().Fields().ByName("items")).List()
	for range 50_000 {
		items.Append(items.NewElement())
		item := items.Get(items.Len() - 1).Message()
		item.Set(item.Descriptor().Fields().ByName("sku"), protoreflect.ValueOfString("abcdef"))
	}
	payload, err := proto.Marshal(m)
	if err != nil {
		b.Fatal(err)
	}
	for name, when := range map[string]string{"one field": `request.user == "ann"`, "all of it": `[request][0].user == "ann"`} {
		b.Run(name, func(b *testing.B) {
			judge(b, parsed(b, "policies:\n- {name: p, services: [shop.Orders], when: '"+when+"', timeout: 1s}"), payload)
		})
	}
}
