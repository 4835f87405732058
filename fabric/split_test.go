package fabric

import (
	"bytes"
	"testing"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// odd is a message with bytes at all kinds of places:
//
//	message M {
//	  bytes data = 1; M inner = 2; oneof one { bytes a = 3; M b = 4; int32 c = 5; }
//	  repeated bytes list = 6; repeated M inners = 7; string text = 8; int64 number = 9;
//	}
func odd(tb testing.TB) protoreflect.MessageDescriptor {
	tb.Helper()
	const (
		once = descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL
		many = descriptorpb.FieldDescriptorProto_LABEL_REPEATED
	)
	m := &descriptorpb.DescriptorProto{Name: new("M"), OneofDecl: []*descriptorpb.OneofDescriptorProto{{Name: new("one")}}}
	for i, f := range []struct {
		name  string
		kind  descriptorpb.FieldDescriptorProto_Type
		label descriptorpb.FieldDescriptorProto_Label
		one   bool
	}{
		{"data", descriptorpb.FieldDescriptorProto_TYPE_BYTES, once, false},
		{"inner", descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, once, false},
		{"a", descriptorpb.FieldDescriptorProto_TYPE_BYTES, once, true},
		{"b", descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, once, true},
		{"c", descriptorpb.FieldDescriptorProto_TYPE_INT32, once, true},
		{"list", descriptorpb.FieldDescriptorProto_TYPE_BYTES, many, false},
		{"inners", descriptorpb.FieldDescriptorProto_TYPE_MESSAGE, many, false},
		{"text", descriptorpb.FieldDescriptorProto_TYPE_STRING, once, false},
		{"number", descriptorpb.FieldDescriptorProto_TYPE_INT64, once, false},
	} {
		field := &descriptorpb.FieldDescriptorProto{
			Name: new(f.name), Number: new(int32(i + 1)), Type: f.kind.Enum(), Label: f.label.Enum(),
		}
		if f.kind == descriptorpb.FieldDescriptorProto_TYPE_MESSAGE {
			field.TypeName = new(".M")
		}
		if f.one {
			field.OneofIndex = proto.Int32(0)
		}
		m.Field = append(m.Field, field)
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: new("odd.proto"), Syntax: new("proto3"), MessageType: []*descriptorpb.DescriptorProto{m},
	}, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return file.Messages().Get(0)
}

// field is an encoded field of that number with content.
func field(number protowire.Number, content ...byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), content)
}

func fields(list ...[]byte) []byte { return bytes.Join(list, nil) }

func number(n protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, n, protowire.VarintType), v)
}

// TestSplit takes fields out, or leaves the message to the parser.
func TestSplit(t *testing.T) {
	big, small := bytes.Repeat([]byte{7}, 20), []byte{1, 2}
	for name, c := range map[string]struct {
		data   []byte
		pieces int // 0: it is left to the parser
	}{
		"a field":                            {fields(field(8, 'x'), field(1, big...), number(9, 3)), 1},
		"small ones":                         {fields(field(1, small...)), 0},
		"nested":                             {fields(field(2, field(2, field(1, big...)...)...)), 1},
		"two":                                {fields(field(1, big...), field(2, field(1, big...)...)), 2},
		"in a oneof":                         {fields(number(5, 1), field(3, big...)), 1},
		"behind a smaller one":               {fields(field(1, small...), field(1, big...)), 1},
		"merged with a message before":       {fields(field(2, field(8, 'x')...), field(2, field(1, big...)...)), 1},
		"before a smaller one":               {fields(field(1, big...), field(1, small...)), 0},
		"twice":                              {fields(field(1, big...), field(1, big...)), 0},
		"before another of its oneof":        {fields(field(3, big...), number(5, 1)), 0},
		"within a oneof that is replaced":    {fields(field(4, field(1, big...)...), number(5, 1)), 0},
		"before a message that it merges in": {fields(field(2, field(1, big...)...), field(2, field(1, small...)...)), 0},
		"in a list":                          {fields(field(6, big...)), 1},
		"among small ones in a list":         {fields(field(6, small...), field(6, big...), field(8, 'x'), field(6), field(6, big...)), 2},
		"in a list with another wire type":   {fields(number(6, 1), field(6, big...)), 1},
		"in a list of a nested message":      {fields(field(2, field(6, small...)...), field(2, field(6, big...)...)), 0},
		"in a message of a list":             {fields(field(7, field(1, big...)...)), 0},
		"a text":                             {fields(field(8, big...)), 0},
		"of no known field":                  {fields(field(19, big...)), 0},
		"cut off":                            {field(1, big...)[:15], 0},
		"no tag":                             {fields(field(1, big...), []byte{0x80}), 0},
		"too much besides":                   {fields(field(1, big...), field(8, bytes.Repeat([]byte{'x'}, maxRest)...)), 0},
	} {
		t.Run(name, func(t *testing.T) { checkSplit(t, c.data, c.pieces, 10) })
	}
}

// checkSplit compares with the parser; fewer than 0 pieces: any number.
func checkSplit(t *testing.T, data []byte, pieces, least int) {
	t.Helper()
	d := odd(t)
	s, ok := split(data, d, least)
	if pieces >= 0 && (ok != (pieces > 0) || ok && len(s.pieces) != pieces) {
		t.Fatalf("%v, %d pieces: want %d", ok, len(s.pieces), pieces)
	}
	if !ok {
		return
	}
	want, got := dynamicpb.NewMessage(d), dynamicpb.NewMessage(d)
	wantErr, err := proto.Unmarshal(data, want), proto.Unmarshal(s.rest, got)
	if (wantErr == nil) != (err == nil) {
		t.Fatalf("error %v: want %v", err, wantErr)
	}
	if err != nil {
		return
	}
	if s.join(got); !proto.Equal(got, want) {
		t.Fatalf("got %v: want %v", got, want)
	}
	for _, p := range s.pieces {
		if len(p.data) > 0 && !within(p.data, data) {
			t.Error("a piece was copied")
		}
	}
}

// within says whether a lies in b's memory.
func within(a, b []byte) bool {
	for i := range b {
		if &b[i] == &a[0] {
			return true
		}
	}
	return false
}

// TestSplitSetsGeneratedMessages does it with a message of generated code.
func TestSplitSetsGeneratedMessages(t *testing.T) {
	want := &testgrpc.SimpleRequest{Payload: payload(9000), ResponseSize: 7, ExpectCompressed: &testgrpc.BoolValue{Value: true}}
	want.Payload.Body[5] = 1
	data, err := proto.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got := new(testgrpc.SimpleRequest)
	s, ok := split(data, got.ProtoReflect().Descriptor(), borrowable)
	if !ok || proto.Unmarshal(s.rest, got) != nil {
		t.Fatalf("%v, rest %x", ok, s.rest)
	}
	if s.join(got.ProtoReflect()); !proto.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if !within(got.GetPayload().GetBody(), data) {
		t.Error("the body was copied")
	}
}

// FuzzSplit compares with the parser.
func FuzzSplit(f *testing.F) {
	big := bytes.Repeat([]byte{7}, 20)
	f.Add(fields(field(8, 'x'), field(1, big...), number(9, 3)), 10)
	f.Add(fields(field(2, field(3, big...)...), field(4, field(1, big...)...)), 5)
	f.Add(fields(field(3, big...), number(5, 1)), 3)
	f.Add(fields(field(2, field(1, big...)...), field(2, field(8, 'x')...)), 1)
	f.Fuzz(func(t *testing.T, data []byte, least int) { checkSplit(t, data, -1, max(least, 1)) })
}
