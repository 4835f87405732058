package calls

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/internal/pool/services"
)

// descriptors provides the descriptors of the pool's services, for policies and reflection.
type descriptors struct{ registry *services.Registry }

// RangeFiles implements policy.Descriptors.
func (d descriptors) RangeFiles(f func(protoreflect.FileDescriptor) bool) {
	for file := range d.files() {
		if !f(file) {
			return
		}
	}
}

// Services returns the services that have endpoints now.
func (d descriptors) Services() []string {
	var names []string
	for _, e := range d.registry.Endpoints() {
		names = append(names, e.Services...)
	}
	slices.SortFunc(names, cmp.Compare[string])
	return slices.Compact(names)
}

// FindFileByPath implements protodesc.Resolver.
func (d descriptors) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	for file := range d.files() {
		if f := imported(file, path); f != nil {
			return f, nil
		}
	}
	return nil, protoregistry.NotFound
}

// FindDescriptorByName implements protodesc.Resolver.
func (d descriptors) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if s := d.registry.Service(string(name)); s != nil {
		return s, nil
	}
	for file := range d.files() {
		if found := declared(file, name); found != nil {
			return found, nil
		}
	}
	return nil, protoregistry.NotFound
}

// files iterates over the files that declare the pool's services.
func (d descriptors) files() func(func(protoreflect.FileDescriptor) bool) {
	return func(yield func(protoreflect.FileDescriptor) bool) {
		for _, name := range d.registry.Described() {
			if s := d.registry.Service(name); s != nil && !yield(s.ParentFile()) {
				return
			}
		}
	}
}

// imported returns the file of that path among a file and its imports.
func imported(file protoreflect.FileDescriptor, path string) protoreflect.FileDescriptor {
	if file.Path() == path {
		return file
	}
	imports := file.Imports()
	for i := range imports.Len() {
		if f := imported(imports.Get(i).FileDescriptor, path); f != nil {
			return f
		}
	}
	return nil
}

// declared finds the declaration of a name in a file and its imports.
func declared(file protoreflect.FileDescriptor, name protoreflect.FullName) protoreflect.Descriptor {
	var files protoregistry.Files
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if files.RegisterFile(f) != nil {
			return // it is registered already
		}
		imports := f.Imports()
		for i := range imports.Len() {
			add(imports.Get(i).FileDescriptor)
		}
	}
	add(file)
	d, err := files.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	return d
}
