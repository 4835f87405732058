package policy

import (
	"strings"

	"github.com/google/cel-go/cel"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
)

// requestOf returns the declaration of the variable request as a message of type d, or of any type
// if d is nil.
func requestOf(d protoreflect.MessageDescriptor) ([]cel.EnvOption, error) {
	if d == nil {
		return []cel.EnvOption{cel.Variable("request", cel.DynType)}, nil
	}
	files := map[string]protoreflect.FileDescriptor{}
	withImports(files, d.ParentFile())
	files, err := renameConflicts(files)
	if err != nil {
		return nil, err
	}
	options := []cel.EnvOption{cel.Variable("request", cel.ObjectType(string(d.FullName())))}
	for _, file := range files {
		options = append(options, cel.TypeDescs(file))
	}
	return options, nil
}

func withImports(files map[string]protoreflect.FileDescriptor, f protoreflect.FileDescriptor) {
	if files[f.Path()] != nil {
		return
	}
	files[f.Path()] = f
	for i := range f.Imports().Len() {
		withImports(files, f.Imports().Get(i).FileDescriptor)
	}
}

// renameConflicts renames the files of a service when this program contains a different file
// of the same name.
func renameConflicts(files map[string]protoreflect.FileDescriptor) (map[string]protoreflect.FileDescriptor, error) {
	taken := false
	for _, f := range files {
		taken = taken || shadowed(f)
	}
	if !taken {
		return files, nil
	}
	set := &descriptorpb.FileDescriptorSet{}
	for _, f := range files {
		set.File = append(set.File, renamed(protodesc.ToFileDescriptorProto(f)))
	}
	list, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	result := map[string]protoreflect.FileDescriptor{}
	list.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		result[f.Path()] = f
		return true
	})
	return result, nil
}

// shadowed reports whether this program contains a different file of the same name.
func shadowed(f protoreflect.FileDescriptor) bool {
	linked, err := protoregistry.GlobalFiles.FindFileByPath(f.Path())
	if err != nil || linked == f || wellKnown(f.Path()) {
		return false
	}
	return !proto.Equal(protodesc.ToFileDescriptorProto(linked), protodesc.ToFileDescriptorProto(f))
}

// wellKnown reports whether CEL provides the types of a file.
func wellKnown(path string) bool { return strings.HasPrefix(path, "google/protobuf/") }

func renamed(f *descriptorpb.FileDescriptorProto) *descriptorpb.FileDescriptorProto {
	rename := func(path string) string {
		if wellKnown(path) {
			return path
		}
		return "of-the-service/" + path
	}
	f.Name = new(rename(f.GetName()))
	for i, path := range f.GetDependency() {
		f.Dependency[i] = rename(path)
	}
	return f
}
