package plain

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/outboard-run/outboard/fabric/call"
)

// The methods of reflection, which use the same messages on the wire.
const (
	reflectionMethod = "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	reflectionAlpha  = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
)

// Bounds of the descriptors that a peer may send.
const (
	maxServices = 10_000
	maxFiles    = 10_000
	maxBytes    = 16 << 20 // of all files
)

// Learned are the descriptors of a peer, obtained by reflection. They implement
// [Descriptors].
type Learned struct {
	*protoregistry.Files
	services []string
}

// Services implements Descriptors.
func (l *Learned) Services() []string { return slices.Clone(l.services) }

// FilesOf returns the files that declare a service: the file that does, and all files that it imports,
// each after its own imports.
func (l *Learned) FilesOf(service string) (*descriptorpb.FileDescriptorSet, error) {
	d, err := l.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, fmt.Errorf("service %s: %w", service, err)
	}
	set, seen := new(descriptorpb.FileDescriptorSet), make(map[string]bool)
	var add func(protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		imports := file.Imports()
		for i := range imports.Len() {
			add(imports.Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(file))
	}
	add(d.ParentFile())
	return set, nil
}

// Learn fetches the services of t's peer and their descriptors by server
// reflection, v1 or v1alpha. It omits the reflection services.
func Learn(ctx context.Context, t call.Transport) (*Learned, error) {
	l, err := learn(ctx, t, reflectionMethod)
	if status.Code(err) == codes.Unimplemented {
		l, err = learn(ctx, t, reflectionAlpha)
	}
	if err != nil {
		return nil, fmt.Errorf("learn descriptors: %w", err)
	}
	return l, nil
}

// reflectionClient is a client of the reflection service of one peer.
type reflectionClient struct {
	stream call.ClientStream
	files  map[string]*descriptorpb.FileDescriptorProto
	bytes  int // of all files that were received
}

func learn(ctx context.Context, t call.Transport, method string) (*Learned, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := t.Open(ctx, &call.Head{Method: method, Streaming: true})
	if err != nil {
		return nil, err
	}
	p := &reflectionClient{stream: stream, files: make(map[string]*descriptorpb.FileDescriptorProto)}
	services, err := p.services()
	if err != nil {
		return nil, err
	}
	for _, name := range services {
		request := &reflectionv1.ServerReflectionRequest_FileContainingSymbol{FileContainingSymbol: name}
		err := p.fetchFiles(&reflectionv1.ServerReflectionRequest{MessageRequest: request})
		if err != nil && status.Code(err) != codes.NotFound { // a server may list a service whose file it lacks
			return nil, fmt.Errorf("service %s: %w", name, err)
		}
	}
	if err := p.fetchImports(); err != nil {
		return nil, err
	}
	_ = stream.CloseSend()
	set := new(descriptorpb.FileDescriptorSet)
	for _, file := range p.files {
		set.File = append(set.File, file)
	}
	files, err := protodesc.NewFiles(set)
	return &Learned{files, services}, err
}

func (c *reflectionClient) exchange(request *reflectionv1.ServerReflectionRequest) (*reflectionv1.ServerReflectionResponse, error) {
	data, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	if err := c.stream.Send(&call.Message{Data: data}); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	m, err := c.stream.Recv()
	if errors.Is(err, io.EOF) {
		return nil, io.ErrUnexpectedEOF
	}
	if err != nil {
		return nil, err
	}
	defer m.Free()
	response := new(reflectionv1.ServerReflectionResponse)
	if err := proto.Unmarshal(m.Data, response); err != nil {
		return nil, err
	}
	if e := response.GetErrorResponse(); e != nil {
		return nil, status.Error(codes.Code(e.GetErrorCode()), e.GetErrorMessage())
	}
	return response, nil
}

func (c *reflectionClient) services() (names []string, err error) {
	response, err := c.exchange(&reflectionv1.ServerReflectionRequest{
		MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{},
	})
	if err != nil {
		return nil, err
	}
	for _, s := range response.GetListServicesResponse().GetService() {
		if !strings.HasPrefix(s.GetName(), "grpc.reflection.") {
			names = append(names, s.GetName())
		}
	}
	if len(names) > maxServices {
		return nil, fmt.Errorf("%d services: at most %d", len(names), maxServices)
	}
	slices.Sort(names)
	return names, nil
}

// fetchFiles stores the files in the response to request.
func (c *reflectionClient) fetchFiles(request *reflectionv1.ServerReflectionRequest) error {
	response, err := c.exchange(request)
	if err != nil {
		return err
	}
	for _, raw := range response.GetFileDescriptorResponse().GetFileDescriptorProto() {
		if c.bytes += len(raw); c.bytes > maxBytes {
			return fmt.Errorf("more than %d bytes of files", maxBytes)
		}
		file := new(descriptorpb.FileDescriptorProto)
		if err := proto.Unmarshal(raw, file); err != nil {
			return err
		}
		c.files[file.GetName()] = file
	}
	if len(c.files) > maxFiles {
		return fmt.Errorf("%d files: at most %d", len(c.files), maxFiles)
	}
	return nil
}

// fetchImports fetches the imported files transitively.
func (c *reflectionClient) fetchImports() error {
	for {
		missing := c.missingImports()
		if len(missing) == 0 {
			return nil
		}
		for _, name := range missing {
			request := &reflectionv1.ServerReflectionRequest_FileByFilename{FileByFilename: name}
			if err := c.fetchFiles(&reflectionv1.ServerReflectionRequest{MessageRequest: request}); err != nil {
				return fmt.Errorf("file %s: %w", name, err)
			}
			if c.files[name] == nil {
				return fmt.Errorf("file %s: peer sent others", name)
			}
		}
	}
}

func (c *reflectionClient) missingImports() (names []string) {
	for _, file := range c.files {
		for _, name := range file.GetDependency() {
			if c.files[name] == nil {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
