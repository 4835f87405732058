package fabric

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// moveInto moves value, to which there is no other reference, into v. It returns false if their
// types differ: then the value has to be encoded.
func (f *codecState) moveInto(value, v any) (bool, error) {
	from, to := protoOf(value), protoOf(v)
	if !f.proto || !sameType(from, to) {
		return false, nil
	}
	if err := f.checkReceive(proto.Size(from)); err != nil {
		return true, err
	}
	moveFields(from, to)
	return true, nil
}

// copyInto copies value, which its owner keeps, into v.
func (f *codecState) copyInto(value, v any) (bool, error) {
	from, to := protoOf(value), protoOf(v)
	if !f.proto || !sameType(from, to) {
		return false, nil
	}
	if err := f.checkReceive(proto.Size(from)); err != nil {
		return true, err
	}
	proto.Reset(to)
	proto.Merge(to, from)
	return true, nil
}

func sameType(a, b proto.Message) bool {
	return a != nil && b != nil && a.ProtoReflect().Descriptor() == b.ProtoReflect().Descriptor()
}

// moveFields moves the fields of from to to. Lists, maps and messages are not copied: from
// must not be used afterwards.
func moveFields(from, to proto.Message) {
	proto.Reset(to)
	source, target := from.ProtoReflect(), to.ProtoReflect()
	source.Range(func(fd protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		target.Set(fd, v)
		return true
	})
	if unknown := source.GetUnknown(); len(unknown) > 0 {
		target.SetUnknown(unknown)
	}
}
