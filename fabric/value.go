package fabric

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// take moves value, which nobody else has, into v. It says no where the two are
// of different kinds: then the bytes must do it.
func (f *form) take(value, v any) (bool, error) {
	from, to := protoOf(value), protoOf(v)
	if !f.proto || !alike(from, to) {
		return false, nil
	}
	if err := f.checkReceive(proto.Size(from)); err != nil {
		return true, err
	}
	move(from, to)
	return true, nil
}

// copyInto copies value, which stays its owner's, into v.
func (f *form) copyInto(value, v any) (bool, error) {
	from, to := protoOf(value), protoOf(v)
	if !f.proto || !alike(from, to) {
		return false, nil
	}
	if err := f.checkReceive(proto.Size(from)); err != nil {
		return true, err
	}
	proto.Reset(to)
	proto.Merge(to, from)
	return true, nil
}

func alike(a, b proto.Message) bool {
	return a != nil && b != nil && a.ProtoReflect().Descriptor() == b.ProtoReflect().Descriptor()
}

// move gives from's fields to to. Lists, maps and messages are not copied: from
// is used by nobody after that.
func move(from, to proto.Message) {
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
