package policy

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// mirrorRules copy a fraction of the unary calls to the method of the same name of another
// service.
type mirrorRules struct {
	to       string
	fraction float64
}

type mirrorStep struct {
	*mirrorRules
	policy *policy
}

func (r *mirrorRules) bind(p *policy, _ step, _ time.Time) step { return &mirrorStep{r, p} }

func (s *mirrorStep) apply(x *Exchange) error {
	// A copy for the call's own service would run its method twice.
	if x.Head.Service() == s.to {
		return nil
	}
	if x.Head.Streaming {
		return x.streamError()
	}
	if !x.chance(s.fraction) {
		return nil
	}
	x.Plan.Mirror = append(x.Plan.Mirror, Mirror{s.to})
	s.policy.recordAction(x)
	return nil
}

// mirrorProblem returns why the known methods that s selects cannot be mirrored to the
// service to; "" if they can.
func (in *inputs) mirrorProblem(s *selector, to string) string {
	if slices.ContainsFunc(s.services, func(g glob) bool { name, exact := g.exact(); return exact && name == to }) {
		return fmt.Sprintf("calls of %s cannot be mirrored to %s itself: its methods would run twice", to, to)
	}
	described := in.describes(to)
	for _, path := range in.selectedMethods(s) {
		service, method, _ := strings.Cut(path[1:], "/")
		if service == to {
			continue
		}
		m, counterpart := in.known[path], in.known["/"+to+"/"+method]
		switch {
		case isStreaming(m):
			return fmt.Sprintf("%s/%s is a streaming method, and only unary calls can be mirrored: name the methods", service, method)
		case described && counterpart == nil:
			return fmt.Sprintf("%s has no method %s, which %s has: name the services and methods that both have", to, method, service)
		case described && isStreaming(counterpart):
			return fmt.Sprintf("%s/%s is a streaming method, and %s/%s is not: name the methods", to, method, service, method)
		}
	}
	return ""
}

// describes reports whether the methods of a service are known.
func (in *inputs) describes(service string) bool {
	for path := range in.known {
		if strings.HasPrefix(path, "/"+service+"/") {
			return true
		}
	}
	return false
}

// selectedMethods returns the known methods that s selects, in order.
func (in *inputs) selectedMethods(s *selector) []string {
	var paths []string
	for path := range in.known {
		service, method, _ := strings.Cut(path[1:], "/")
		if s.services.match(service) && s.methods.match(method) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

func isStreaming(m protoreflect.MethodDescriptor) bool {
	return m.IsStreamingClient() || m.IsStreamingServer()
}
