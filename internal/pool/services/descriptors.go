package services

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/pool/state"
)

// Describe stores the files that declare a service, and all files that these import, so that
// policies and reflection can read its requests.
func (r *Registry) Describe(ctx context.Context, service string, files *descriptorpb.FileDescriptorSet) error {
	if _, err := find(files, service); err != nil {
		return outboard.Errorf(outboard.Invalid, "describe "+service, "%w", err)
	}
	text, err := proto.MarshalOptions{Deterministic: true}.Marshal(files)
	if err != nil {
		return fmt.Errorf("describe %s: %w", service, err)
	}
	r.view.Lock()
	known := bytes.Equal(r.descriptors[service][r.opts.Self].files, text)
	r.view.Unlock()
	if known {
		return nil
	}
	if _, err := r.opts.State.Put(ctx, servicesPrefix+string(r.opts.Self)+"/"+service, text, 0); err != nil {
		return fmt.Errorf("describe %s: %w", service, err)
	}
	return nil
}

// Described returns the names of the services with descriptors.
func (r *Registry) Described() []string {
	r.view.Lock()
	defer r.view.Unlock()
	return slices.Sorted(maps.Keys(r.descriptors))
}

// Descriptions returns how often descriptors have changed.
func (r *Registry) Descriptions() uint64 {
	r.view.Lock()
	defer r.view.Unlock()
	return r.descriptions
}

// Service returns a service's descriptor, or nil if it is not known. A description is resolved when
// it is first used, and kept: each call of plain gRPC looks up its service here.
func (r *Registry) Service(name string) protoreflect.ServiceDescriptor {
	r.view.Lock()
	service, ok := r.resolved[name]
	text, version := r.descriptorOf(name), r.descriptions
	r.view.Unlock()
	if ok || text == nil {
		return service
	}
	service = resolve(text, name)
	r.view.Lock()
	defer r.view.Unlock()
	if r.descriptions == version {
		r.resolved[name] = service
	}
	return service
}

// resolve returns the descriptor of a service in a marshalled set of files, nil if it has none.
func resolve(text []byte, name string) protoreflect.ServiceDescriptor {
	var files descriptorpb.FileDescriptorSet
	if proto.Unmarshal(text, &files) != nil {
		return nil
	}
	service, err := find(&files, name)
	if err != nil {
		return nil
	}
	return service
}

// A described is a node's description of a service.
type described struct {
	files    []byte
	revision uint64
}

// applyDescriptors applies the key of a node and a service: NODE/SERVICE.
func (r *Registry) applyDescriptors(key string, e state.Entry) (bool, error) {
	node, service, ok := strings.Cut(key, "/")
	if !ok {
		return false, errors.New("the key names no node and service")
	}
	all := r.descriptors[service]
	if e.Deleted {
		if delete(all, outboard.NodeID(node)); len(all) == 0 {
			delete(r.descriptors, service)
		}
	} else {
		if all == nil {
			all = make(map[outboard.NodeID]described)
			r.descriptors[service] = all
		}
		all[outboard.NodeID(node)] = described{e.Value, e.Revision}
	}
	delete(r.resolved, service)
	r.descriptions++
	return true, nil
}

// descriptorOf returns the description of a service that this node uses, nil for none: another node
// cannot change how the requests of this node's own services are read. The view's lock is held.
func (r *Registry) descriptorOf(service string) []byte {
	all := r.descriptors[service]
	if own, ok := all[r.opts.Self]; ok {
		return own.files
	}
	var newest described
	for _, d := range all {
		if d.revision > newest.revision {
			newest = d
		}
	}
	return newest.files
}

// Methods returns the names of a service's methods, none if it is not described.
func (r *Registry) Methods(service string) []string {
	d := r.Service(service)
	if d == nil {
		return nil
	}
	var names []string
	for i := range d.Methods().Len() {
		names = append(names, string(d.Methods().Get(i).Name()))
	}
	return names
}

// find resolves the files among themselves and with the well-known ones.
func find(files *descriptorpb.FileDescriptorSet, service string) (protoreflect.ServiceDescriptor, error) {
	resolved, err := protodesc.FileOptions{AllowUnresolvable: false}.NewFiles(files)
	if err != nil {
		return nil, err
	}
	d, err := resolved.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is no service: %w", service, protoregistry.NotFound)
	}
	return s, nil
}
