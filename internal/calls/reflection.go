package calls

import (
	"cmp"
	"slices"
	"strings"

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
	seen := map[string]bool{}
	var find func(protoreflect.FileDescriptor) protoreflect.Descriptor
	find = func(f protoreflect.FileDescriptor) protoreflect.Descriptor {
		if seen[f.Path()] {
			return nil
		}
		seen[f.Path()] = true
		d := declaredIn(f, name)
		imports := f.Imports()
		for i := 0; d == nil && i < imports.Len(); i++ {
			d = find(imports.Get(i).FileDescriptor)
		}
		return d
	}
	return find(file)
}

// declaredIn finds the declaration of a name in one file. All names of a file are in its package, so
// most files need not be indexed: calls of services without a descriptor search all of them.
func declaredIn(file protoreflect.FileDescriptor, name protoreflect.FullName) protoreflect.Descriptor {
	if p := file.Package(); p != "" && !strings.HasPrefix(string(name), string(p)+".") {
		return nil
	}
	var files protoregistry.Files
	if files.RegisterFile(file) != nil {
		return nil
	}
	d, err := files.FindDescriptorByName(name)
	if err != nil {
		return nil
	}
	return d
}
