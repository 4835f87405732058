package calls

import (
	"cmp"
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	"github.com/outboard-run/outboard/internal/pool/services"
)

// descriptors are those of the pool's services, for policies and reflection.
type descriptors struct{ registry *services.Registry }

// RangeFiles implements policy.Descriptors.
func (d descriptors) RangeFiles(f func(protoreflect.FileDescriptor) bool) {
	for file := range d.files() {
		if !f(file) {
			return
		}
	}
}

// Services are the services that have endpoints now.
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

// files are the files that declare the pool's services.
func (d descriptors) files() func(func(protoreflect.FileDescriptor) bool) {
	return func(yield func(protoreflect.FileDescriptor) bool) {
		for _, name := range d.registry.Described() {
			if s := d.registry.Service(name); s != nil && !yield(s.ParentFile()) {
				return
			}
		}
	}
}

// imported is the file of that path among a file and what it imports.
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

// declared finds a name in a file and in what it imports.
func declared(file protoreflect.FileDescriptor, name protoreflect.FullName) protoreflect.Descriptor {
	var files protoregistry.Files
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if files.RegisterFile(f) != nil {
			return // it is there
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

// health says of each service whether it has an endpoint, and of "" that the node
// is there.
type health struct{ p *Plane }

// Check implements grpc_health_v1.HealthServer.
func (h health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	state, known := h.state(r.GetService())
	if !known {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", r.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: state}, nil
}

func (h health) state(service string) (state grpc_health_v1.HealthCheckResponse_ServingStatus, known bool) {
	all := descriptors{h.p.registry}
	switch {
	case service == "" || slices.Contains(all.Services(), service):
		return grpc_health_v1.HealthCheckResponse_SERVING, true
	case slices.Contains(h.p.registry.Described(), service):
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING, true
	}
	return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, false
}

// List implements grpc_health_v1.HealthServer.
func (h health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	all := map[string]*grpc_health_v1.HealthCheckResponse{}
	for _, name := range append(descriptors{h.p.registry}.Services(), "") {
		all[name] = &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	}
	return &grpc_health_v1.HealthListResponse{Statuses: all}, nil
}

// Watch implements grpc_health_v1.HealthServer.
func (h health) Watch(r *grpc_health_v1.HealthCheckRequest, s grpc_health_v1.Health_WatchServer) error {
	last := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		offers, members := h.p.registry.Changed(), h.p.opts.Members.Changed()
		if now, _ := h.state(r.GetService()); now != last {
			last = now
			if err := s.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
		}
		select {
		case <-s.Context().Done():
			return status.FromContextError(s.Context().Err()).Err()
		case <-offers:
		case <-members:
		}
	}
}
