package calls

import (
	"context"
	"slices"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/outboard-run/outboard/internal/pool/services"
)

// health reports whether a service has an endpoint; the service "" is the node itself.
type health struct {
	registry *services.Registry
	members  services.Members
}

// Check implements grpc_health_v1.HealthServer.
func (h health) Check(_ context.Context, r *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	state, known := h.state(r.GetService())
	if !known {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", r.GetService())
	}
	return &grpc_health_v1.HealthCheckResponse{Status: state}, nil
}

func (h health) state(service string) (state grpc_health_v1.HealthCheckResponse_ServingStatus, known bool) {
	all := descriptors{h.registry}
	switch {
	case service == "" || slices.Contains(all.Services(), service):
		return grpc_health_v1.HealthCheckResponse_SERVING, true
	case slices.Contains(h.registry.Described(), service):
		return grpc_health_v1.HealthCheckResponse_NOT_SERVING, true
	}
	return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, false
}

// List implements grpc_health_v1.HealthServer.
func (h health) List(context.Context, *grpc_health_v1.HealthListRequest) (*grpc_health_v1.HealthListResponse, error) {
	all := map[string]*grpc_health_v1.HealthCheckResponse{}
	for _, name := range append(descriptors{h.registry}.Services(), "") {
		all[name] = &grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_SERVING}
	}
	return &grpc_health_v1.HealthListResponse{Statuses: all}, nil
}

// Watch implements grpc_health_v1.HealthServer.
func (h health) Watch(r *grpc_health_v1.HealthCheckRequest, s grpc_health_v1.Health_WatchServer) error {
	last := grpc_health_v1.HealthCheckResponse_UNKNOWN
	for {
		offers, members := h.registry.Changed(), h.members.Changed()
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
