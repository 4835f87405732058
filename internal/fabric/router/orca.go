package router

import (
	"context"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/outboard-run/outboard/fabric/call"
)

// Reports is a source of out-of-band load reports.
type Reports interface {
	// Watch calls got with each report until ctx or the source ends. An error with
	// codes.Unimplemented means that the source never has reports.
	Watch(ctx context.Context, got func(*orca.OrcaLoadReport)) error
}

// loadKey is the trailer key of a load report.
const loadKey = "endpoint-load-metrics-bin"

// OutOfBand returns a source that gets a report from the peer's ORCA service
// (xds.service.orca.v3.OpenRcaService) in each interval; zero leaves the interval to the peer.
func OutOfBand(t call.Transport, interval time.Duration) Reports {
	return &outOfBand{transport: t, interval: interval}
}

type outOfBand struct {
	transport call.Transport
	interval  time.Duration
}

// Watch implements Reports.
func (o *outOfBand) Watch(ctx context.Context, got func(*orca.OrcaLoadReport)) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := o.open(ctx)
	if err != nil {
		return err
	}
	for {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		report, err := reportIn(m)
		if err != nil {
			return err
		}
		got(report)
	}
}

func (o *outOfBand) open(ctx context.Context) (call.ClientStream, error) {
	request := &orcaservice.OrcaLoadReportRequest{}
	if o.interval > 0 {
		request.ReportInterval = durationpb.New(o.interval)
	}
	data, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	s, err := o.transport.Open(ctx, &call.Head{Method: orcaservice.OpenRcaService_StreamCoreMetrics_FullMethodName, Streaming: true})
	if err != nil {
		return nil, err
	}
	// If the call has ended, Recv returns a better error than Send and CloseSend.
	if err := s.Send(&call.Message{Data: data}); err == nil {
		_ = s.CloseSend()
	}
	return s, nil
}

func reportIn(m *call.Message) (*orca.OrcaLoadReport, error) {
	defer m.Free()
	data, err := m.Bytes()
	if err != nil {
		return nil, err
	}
	report := new(orca.OrcaLoadReport)
	if m.Compressed {
		return nil, status.Error(codes.Internal, "router: load report: compressed without need")
	}
	if err := proto.Unmarshal(data, report); err != nil {
		return nil, status.Errorf(codes.Internal, "router: load report: %v", err)
	}
	return report, nil
}

// watch starts to receive the out-of-band reports of an endpoint. The caller holds Router.mu.
func (e *endpoint) watch(r *Router) {
	var ctx context.Context
	ctx, e.stop = context.WithCancel(r.ctx)
	if e.reports == nil {
		return
	}
	r.wg.Go(func() {
		for wait := time.Second; ; wait = min(2*wait, time.Minute) {
			began := time.Now()
			err := e.reports.Watch(ctx, func(report *orca.OrcaLoadReport) {
				(*e.picker.Load()).Report(e.id, report, time.Now())
			})
			if status.Code(err) == codes.Unimplemented {
				return
			}
			if time.Since(began) > time.Minute {
				wait = time.Second
			}
			if !sleep(ctx, wait) {
				return
			}
		}
	})
}

// minReportInterval is the least time between two trailers of an endpoint that are parsed: weights are
// computed once a second, and only the last report counts.
const minReportInterval = 20 * time.Millisecond

// reportOf returns the load report in a trailer, or nil if there is none or the last one was parsed
// less than minReportInterval ago.
func (e *endpoint) reportOf(trailer metadata.MD, now time.Time) *orca.OrcaLoadReport {
	values := trailer[loadKey]
	if len(values) == 0 {
		return nil
	}
	last, at := e.reported.Load(), now.UnixNano()
	// The clock may have been set back since the last report.
	recent := max(at-last, last-at) < int64(minReportInterval)
	if recent || !e.reported.CompareAndSwap(last, at) {
		return nil
	}
	report := new(orca.OrcaLoadReport)
	if proto.Unmarshal([]byte(values[len(values)-1]), report) != nil {
		return nil
	}
	return report
}
