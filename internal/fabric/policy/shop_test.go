package policy

import (
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/timestamppb" // shop.proto imports it

	"github.com/outboard-run/outboard/fabric/call"
)

// shop is a file of two services, as a compiler for protocol buffers would give it.
const shop = `
name: "shop.proto" package: "shop" syntax: "proto3"
dependency: "google/protobuf/timestamp.proto"
message_type {
  name: "Order"
  field { name: "user" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "user" }
  field { name: "total" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL json_name: "total" }
  field { name: "items" number: 3 type: TYPE_MESSAGE type_name: ".shop.Item" label: LABEL_REPEATED json_name: "items" }
  field { name: "address" number: 4 type: TYPE_MESSAGE type_name: ".shop.Address" label: LABEL_OPTIONAL json_name: "address" }
  field { name: "blob" number: 5 type: TYPE_BYTES label: LABEL_OPTIONAL json_name: "blob" }
  field { name: "express" number: 6 type: TYPE_BOOL label: LABEL_OPTIONAL json_name: "express" }
  field { name: "small" number: 7 type: TYPE_INT32 label: LABEL_OPTIONAL json_name: "small" }
  field { name: "weight" number: 8 type: TYPE_DOUBLE label: LABEL_OPTIONAL json_name: "weight" }
  field { name: "count" number: 9 type: TYPE_UINT32 label: LABEL_OPTIONAL json_name: "count" }
  field { name: "placed" number: 10 type: TYPE_MESSAGE type_name: ".google.protobuf.Timestamp" label: LABEL_OPTIONAL json_name: "placed" }
  field { name: "state" number: 11 type: TYPE_ENUM type_name: ".shop.State" label: LABEL_OPTIONAL json_name: "state" }
}
message_type {
  name: "Item"
  field { name: "sku" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "sku" }
  field { name: "price" number: 2 type: TYPE_INT64 label: LABEL_OPTIONAL json_name: "price" }
}
message_type {
  name: "Address"
  field { name: "country" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "country" }
}
message_type {
  name: "Query"
  field { name: "text" number: 1 type: TYPE_STRING label: LABEL_OPTIONAL json_name: "text" }
}
enum_type { name: "State" value { name: "NEW" number: 0 } value { name: "PAID" number: 1 } }
service {
  name: "Orders"
  method { name: "Place" input_type: ".shop.Order" output_type: ".shop.Order" }
  method { name: "Change" input_type: ".shop.Order" output_type: ".shop.Order" }
}
service {
  name: "Search"
  method { name: "Find" input_type: ".shop.Query" output_type: ".shop.Query" }
}
`

const place, find = "/shop.Orders/Place", "/shop.Search/Find"

func shopFiles(t testing.TB) *protoregistry.Files {
	t.Helper()
	var file descriptorpb.FileDescriptorProto
	if err := prototext.Unmarshal([]byte(shop), &file); err != nil {
		t.Fatal(err)
	}
	d, err := protodesc.NewFile(&file, protoregistry.GlobalFiles)
	if err != nil {
		t.Fatal(err)
	}
	files := &protoregistry.Files{}
	if err := files.RegisterFile(d); err != nil {
		t.Fatal(err)
	}
	return files
}

// message is a message of the shop from its text.
func message(t testing.TB, name, text string) *dynamicpb.Message {
	t.Helper()
	d, err := shopFiles(t).FindDescriptorByName(protoreflect.FullName("shop." + name))
	if err != nil {
		t.Fatal(err)
	}
	m := dynamicpb.NewMessage(d.(protoreflect.MessageDescriptor))
	if err := prototext.Unmarshal([]byte(text), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func encoded(t testing.TB, name, text string) []byte {
	t.Helper()
	data, err := proto.Marshal(message(t, name, text))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// start is when everything happens.
func start() time.Time { return time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC) }

// parsed is a set with the shop's types.
func parsed(t testing.TB, text string) *Set {
	t.Helper()
	s, err := Parse("shop.yaml", []byte(text), shopFiles(t))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A visit is a call of a test.
type visit struct {
	method, tenant, peer string
	metadata             metadata.MD
	payload              []byte
	at                   time.Duration // after start
	chance               uint64
	took                 time.Duration
	err                  error

	asked int // for the payload
}

func (v *visit) exchange() *Exchange {
	x := &Exchange{Now: start().Add(v.at), Rand: func() uint64 { return v.chance }}
	x.Head = &call.Head{Method: v.method, Tenant: v.tenant, Peer: v.peer, Metadata: v.metadata}
	if x.Head.Method == "" {
		x.Head.Method = place
	}
	x.Payload = func() ([]byte, error) {
		v.asked++
		return v.payload, nil
	}
	return x
}

// begin begins the call; end ends it.
func (v *visit) begin(s *Set) (*Exchange, *Chain, error) {
	x := v.exchange()
	c := s.For(x.Head)
	err := c.Begin(x)
	return x, c, err
}

func (v *visit) end(x *Exchange, c *Chain) {
	c.End(x, Outcome{Err: v.err, Now: x.Now.Add(v.took)})
}

// run begins and ends the call.
func (v *visit) run(s *Set) (*Exchange, error) {
	x, c, err := v.begin(s)
	if err == nil {
		v.end(x, c)
	}
	return x, err
}

func code(err error) codes.Code { return status.Code(err) }

var (
	errUnavailable = status.Error(codes.Unavailable, "away")
	errNotFound    = status.Error(codes.NotFound, "nothing")
)
