package fabric

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
)

const (
	// borrowable is the least length of a bytes field that is not copied.
	borrowable = 8 << 10
	// maxRest bounds how many bytes of a message are copied in search of such fields.
	maxRest = 64 << 10
	// maxNesting bounds the depth of nested messages in which such fields are searched for.
	maxNesting = 16
	// paddedVarint is the size of a length that is written before its value is known.
	paddedVarint = 5
)

// A splitter extracts the large bytes fields of an encoded message, which may lie in memory that
// its sender can still write: all other fields are copied before they are parsed.
type splitter struct {
	minSize int // bytes of the smallest field to extract
	// rest is the message with these fields empty.
	rest   []byte
	pieces []piece
	path   []protoreflect.FieldDescriptor
	// lists counts the elements so far of the message's own lists of bytes.
	lists map[protowire.Number]int
}

// A piece is the content of the field at path, or of an element of the list at path.
type piece struct {
	path    []protoreflect.FieldDescriptor
	element int // 0 if the field is no list
	data    []byte
}

// split extracts fields of at least the given number of bytes. It returns false if no field was
// extracted: the message has no such field, has too many other bytes, is not well formed, or has a
// field twice.
func split(data []byte, d protoreflect.MessageDescriptor, least int) (*splitter, bool) {
	s := &splitter{minSize: least, rest: make([]byte, 0, 128)}
	return s, s.message(data, d) && len(s.pieces) > 0
}

// message splits one message. A field that was extracted, whole or in part, must not occur again,
// nor another field of its oneof: which occurrence counts is the parser's knowledge.
func (s *splitter) message(data []byte, d protoreflect.MessageDescriptor) bool {
	var taken []protoreflect.FieldDescriptor
	for len(data) > 0 {
		number, kind, tag := protowire.ConsumeTag(data)
		if tag < 0 {
			return false
		}
		value := protowire.ConsumeFieldValue(number, kind, data[tag:])
		if value < 0 || slices.ContainsFunc(taken, func(t protoreflect.FieldDescriptor) bool { return conflicts(t, number) }) {
			return false
		}
		before := len(s.pieces)
		fd := d.Fields().ByNumber(number)
		if !s.field(number, kind, data[tag:tag+value], fd) || len(s.rest) > maxRest {
			return false
		}
		if len(s.pieces) > before && !fd.IsList() {
			taken = append(taken, fd)
		}
		data = data[tag+value:]
	}
	return true
}

// conflicts reports whether a field of that number would overwrite or merge with t.
func conflicts(t protoreflect.FieldDescriptor, number protowire.Number) bool {
	if t.Number() == number {
		return true
	}
	oneof := t.ContainingOneof()
	return oneof != nil && oneof.Fields().ByNumber(number) != nil
}

// field extracts the field's value, or parts of it, or copies it.
func (s *splitter) field(number protowire.Number, kind protowire.Type, value []byte, fd protoreflect.FieldDescriptor) bool {
	s.rest = protowire.AppendTag(s.rest, number, kind)
	element, ok := s.countElement(kind, fd)
	if !ok || len(value) < s.minSize {
		return s.copy(value)
	}
	content, n := protowire.ConsumeBytes(value)
	if n != len(value) {
		return false // the sender is changing the message
	}
	switch {
	case fd.Kind() == protoreflect.BytesKind:
		s.path = append(s.path, fd)
		s.pieces = append(s.pieces, piece{slices.Clone(s.path), element, slices.Clip(content)})
		s.path = s.path[:len(s.path)-1]
		s.rest = append(s.rest, 0)
		return true
	case fd.Kind() == protoreflect.MessageKind && len(s.path) < maxNesting:
		return s.nested(content, fd)
	}
	return s.copy(value)
}

// countElement reports whether the field's value, or parts of it, may be extracted, and returns its
// index in a list. The elements of lists in nested messages are left to the parser, since a second
// occurrence of the message would append to the list.
func (s *splitter) countElement(kind protowire.Type, fd protoreflect.FieldDescriptor) (element int, ok bool) {
	switch {
	case fd == nil || kind != protowire.BytesType:
		return 0, false
	case fd.Cardinality() != protoreflect.Repeated:
		return 0, true
	case fd.Kind() != protoreflect.BytesKind || len(s.path) > 0:
		return 0, false
	}
	if s.lists == nil {
		s.lists = map[protowire.Number]int{}
	}
	element = s.lists[fd.Number()]
	s.lists[fd.Number()]++
	return element, true
}

func (s *splitter) copy(value []byte) bool {
	if len(s.rest)+len(value) > maxRest {
		return false
	}
	s.rest = append(s.rest, value...)
	return true
}

func (s *splitter) nested(content []byte, fd protoreflect.FieldDescriptor) bool {
	at := len(s.rest)
	s.rest = append(s.rest, make([]byte, paddedVarint)...)
	s.path = append(s.path, fd)
	ok := s.message(content, fd.Message())
	s.path = s.path[:len(s.path)-1]
	length := len(s.rest) - at - paddedVarint
	for i := range paddedVarint {
		s.rest[at+i] = byte(length>>(7*i))&0x7f | 0x80
	}
	s.rest[at+paddedVarint-1] &= 0x7f
	return ok
}

// join puts the pieces into the message that was parsed from rest.
func (s *splitter) join(m protoreflect.Message) {
	for _, p := range s.pieces {
		at, last := m, len(p.path)-1
		for _, fd := range p.path[:last] {
			at = at.Mutable(fd).Message()
		}
		fd := p.path[last]
		if !fd.IsList() {
			at.Set(fd, protoreflect.ValueOfBytes(p.data))
		} else if list := at.Mutable(fd).List(); p.element < list.Len() { // a message may decode itself, and drop elements
			list.Set(p.element, protoreflect.ValueOfBytes(p.data))
		}
	}
}
