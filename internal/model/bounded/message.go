package bounded

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/runtime/protoiface"

	"github.com/outboard-run/outboard"
)

// Limits of a message: the messages within it, entries of maps included, and the memory of its
// repeated fields, for each of its bytes beyond freeElements.
const (
	maxMessages  = 16 << 10
	expansion    = 8 // an int64 whose encoding has one byte
	freeElements = 1 << 20
)

// The sizes in memory of an element of a repeated field, in bytes.
const (
	sliceSize  = 24
	scalarSize = 8
)

// A Message is decoded into another message, unless the result would be much larger than its
// encoding. That message then remains empty, and Refused tells why. Decoding itself returns no error,
// since grpc-go would end the call with codes.Internal.
type Message struct {
	proto.Message
	refused error
}

// NewMessage returns a Message that is decoded into m.
func NewMessage(m proto.Message) *Message { return &Message{Message: m} }

// Refused returns an error of the kind outboard.Invalid if the message was not decoded.
func (m *Message) Refused() error { return m.refused }

// ProtoReflect implements proto.Message.
func (m *Message) ProtoReflect() protoreflect.Message {
	return reflected{m.Message.ProtoReflect(), m}
}

// Reset has proto.Reset reset the message itself.
func (m *Message) Reset() { proto.Reset(m.Message) }

// reflected is a message with methods that package proto prefers to reflection.
type reflected struct {
	protoreflect.Message
	of *Message
}

// ProtoMethods implements protoreflect.Message.
func (r reflected) ProtoMethods() *protoiface.Methods {
	inner := r.Message.ProtoMethods()
	return &protoiface.Methods{
		Flags: inner.Flags,
		Unmarshal: func(in protoiface.UnmarshalInput) (protoiface.UnmarshalOutput, error) {
			if r.of.refused = check(in.Buf, r.Descriptor()); r.of.refused != nil {
				return protoiface.UnmarshalOutput{Flags: protoiface.UnmarshalInitialized}, nil //nolint:nilerr // see Message
			}
			in.Message = r.Message
			return inner.Unmarshal(in)
		},
		Size: func(in protoiface.SizeInput) protoiface.SizeOutput {
			in.Message = r.Message
			return inner.Size(in)
		},
	}
}

// check returns an error if a message exceeds the limits. It does not check the encoding itself: the
// decoder does.
func check(b []byte, d protoreflect.MessageDescriptor) error {
	var t tally
	t.count(b, d)
	switch {
	case t.messages > maxMessages:
		return outboard.Errorf(outboard.Invalid, "", "the message has more than %d parts", maxMessages)
	case t.elements > freeElements && t.elements > expansion*len(b):
		return outboard.Errorf(outboard.Invalid, "", "the message of %d bytes has elements of %d: send raw contents", len(b), t.elements)
	}
	return nil
}

// A tally is what decoding a message allocates beside copies of its bytes.
type tally struct {
	messages int // within it
	elements int // bytes of repeated fields
}

// count adds the fields of a message until it finds too many messages, or what is no field.
func (t *tally) count(b []byte, d protoreflect.MessageDescriptor) {
	for len(b) > 0 && t.messages <= maxMessages {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return
		}
		size := protowire.ConsumeFieldValue(number, kind, b[n:])
		if size < 0 {
			return
		}
		if f := d.Fields().ByNumber(number); f != nil {
			t.add(b[n:n+size], kind, f)
		}
		b = b[n+size:]
	}
}

// add adds a field.
func (t *tally) add(value []byte, kind protowire.Type, f protoreflect.FieldDescriptor) {
	content, isBytes := value, kind == protowire.BytesType
	if isBytes {
		content, _ = protowire.ConsumeBytes(value)
	}
	switch {
	case f.Message() != nil && isBytes:
		t.messages++
		t.count(content, f.Message())
	case !f.IsList():
	case !isBytes:
		t.elements += scalarSize
	case f.Kind() == protoreflect.StringKind || f.Kind() == protoreflect.BytesKind:
		t.elements += sliceSize
	default:
		t.elements += packed(content, f.Kind())
	}
}

// packed returns the size in memory of a packed list of numbers.
func packed(b []byte, kind protoreflect.Kind) int {
	width := scalarSize
	switch kind { //nolint:exhaustive // all others have 8 bytes at most
	case protoreflect.Fixed32Kind, protoreflect.Sfixed32Kind, protoreflect.FloatKind,
		protoreflect.Fixed64Kind, protoreflect.Sfixed64Kind, protoreflect.DoubleKind, protoreflect.BoolKind:
		return len(b)
	case protoreflect.Int32Kind, protoreflect.Sint32Kind, protoreflect.Uint32Kind, protoreflect.EnumKind:
		width = scalarSize / 2
	}
	n := 0
	for _, c := range b {
		if c < 0x80 { // the last byte of a number
			n++
		}
	}
	return width * n
}
