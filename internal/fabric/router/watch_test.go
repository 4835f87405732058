package router

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	orca "github.com/cncf/xds/go/xds/data/orca/v3"
	orcaservice "github.com/cncf/xds/go/xds/service/orca/v3"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	otelcodes "go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/outboard-run/outboard/fabric/call"
	"github.com/outboard-run/outboard/internal/fabric/balance"
)

// gathered are the metrics as lines: name{labels} value, without those of zero.
func gathered(t *testing.T, registry *prometheus.Registry) []string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, f := range families {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			value := m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			if value != 0 {
				lines = append(lines, fmt.Sprintf("%s{%s} %v", f.GetName(), strings.Join(labels, ","), value))
			}
		}
	}
	return lines
}

func TestMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := routedWith(t, Options{Registerer: registry, Methods: 2}, "- {name: most, concurrency: {limit: 10}}", failing(nil, errDown))
	for i := range 4 {
		_, _, _ = r.ServeUnary(t.Context(), &call.Head{Method: find, Peer: "uid:7"}, text("abc"))
		// Anybody can invent names: they are counted, and not one by one.
		_, _, _ = r.ServeUnary(t.Context(), &call.Head{Method: fmt.Sprint("/no.Such/Method", i), Peer: "\xff"}, text("abc"))
		_, _, _ = r.ServeUnary(t.Context(), &call.Head{Method: "\xff/"}, text("abc"))
	}
	got := gathered(t, registry)
	got = slices.DeleteFunc(got, func(s string) bool {
		return strings.Contains(s, "call_seconds") && !strings.Contains(s, "Search") || strings.Contains(s, "policy_calls")
	})
	want := []string{
		"outboard_fabric_call_bytes_total{direction=received,method=Find,service=shop.Search} 9",
		"outboard_fabric_call_bytes_total{direction=sent,method=Find,service=shop.Search} 12",
		"outboard_fabric_call_bytes_total{direction=sent,method=other,service=other} 24",
		"outboard_fabric_call_seconds{method=Find,service=shop.Search} 4",
		"outboard_fabric_calls_total{code=OK,method=Find,service=shop.Search} 3",
		"outboard_fabric_calls_total{code=Unavailable,method=Find,service=shop.Search} 1",
		"outboard_fabric_calls_total{code=Unimplemented,method=other,service=other} 8",
		"outboard_fabric_endpoint_calls_total{endpoint=a,result=error,service=shop.Search} 1",
		"outboard_fabric_endpoint_calls_total{endpoint=a,result=ok,service=shop.Search} 3",
		"outboard_fabric_peer_calls_total{peer=,result=error} 4",
		"outboard_fabric_peer_calls_total{peer=other,result=error} 4",
		"outboard_fabric_peer_calls_total{peer=uid:7,result=error} 1",
		"outboard_fabric_peer_calls_total{peer=uid:7,result=ok} 3",
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestPoliciesAreCounted(t *testing.T) {
	registry := prometheus.NewRegistry()
	r := routedWith(t, Options{Registerer: registry}, "- {name: no, access: {default: deny, rules: [{allow: {tenants: [gold]}}]}}", newQuick(echo))
	for range 3 {
		if _, err := ask(t.Context(), r, "x"); status.Code(err) != codes.PermissionDenied {
			t.Fatal(err)
		}
	}
	if got := gathered(t, registry); !slices.Contains(got, "outboard_fabric_policy_calls_total{method=Find,policy=no,service=shop.Search} 3") {
		t.Errorf("metrics: %q", got)
	}
	if diff := cmp.Diff(r.Calls()[0].Acted, []Acted{{"no", 3}}); diff != "" {
		t.Errorf("(-got +want):\n%s", diff)
	}
}

func TestTablesAreBounded(t *testing.T) {
	made := 0
	tab := newTable(2, func(s string) bool { return s != "bad" }, func(string) *int { made++; return &made })
	a, b := tab.of("a"), tab.of("b")
	for _, name := range []string{"c", "d", "bad"} {
		if got := tab.of(name); got == nil {
			t.Error("nil")
		}
	}
	if tab.of("a") != a || tab.of("b") != b || made != 3 || len(tab.all()) != 3 {
		t.Errorf("made %d, there are %d", made, len(tab.all()))
	}
}

// The live table shows the last seconds, not what was before.
func TestRows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := routed(t, "", slow(10*time.Millisecond))
		for range 500 {
			if _, err := ask(t.Context(), r, "four"); err != nil {
				t.Fatal(err)
			}
		}
		got := r.Calls()[0]
		// 500 calls of 10 ms are 5 s; the window is 5 to 10 s long.
		if got.Rate < 50 || got.Rate > 100 || got.Sent != 4*got.Rate || got.Errors != 0 || got.Calls != 500 {
			t.Errorf("%+v", got)
		}
		if near := 10 * time.Millisecond; got.P50 < near || got.P50 > near*9/8 || got.P99 < near || got.P99 > near*9/8 {
			t.Errorf("p50 %v, p99 %v, want about %v", got.P50, got.P99, near)
		}
		time.Sleep(time.Minute)
		if got := r.Calls()[0]; got.Rate != 0 || got.P99 != 0 || got.Calls != 500 {
			t.Errorf("a minute later: %+v", got)
		}
	})
}

func TestRowInFlight(t *testing.T) {
	r := routed(t, "", newFake(echoes))
	s := open(t.Context(), t, r)
	eventually(t, "one in flight", func() bool { rows := r.Calls(); return len(rows) == 1 && rows[0].InFlight == 1 })
	_ = s.CloseSend()
	_, _ = rest(s)
	eventually(t, "none in flight", func() bool { return r.Calls()[0].InFlight == 0 })
}

// Each duration lies in its bucket, and buckets are narrow.
func TestBuckets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(t, "d"))
		i := bucketOf(d)
		end := bucketEnd(i)
		if d >= end && d > 0 || i > 0 && d < bucketEnd(i-1) {
			t.Fatalf("%v is in bucket %d, which ends at %v", d, i, end)
		}
		if d >= 8*time.Microsecond && end > d*9/8+time.Microsecond {
			t.Fatalf("%v is in bucket %d, which ends at %v: too wide", d, i, end)
		}
	})
	if got := bucketOf(24 * time.Hour); got != buckets-1 {
		t.Errorf("a day is in bucket %d", got)
	}
}

func TestSlowCallsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		logger := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}}))
		r := routedWith(t, Options{Logger: logger, Slow: time.Second}, "- {name: note, log: {slow: 3s}}", slow(2*time.Second))
		if _, err := ask(t.Context(), r, "x"); err != nil {
			t.Fatal(err)
		}
		want := "level=WARN msg=\"slow call\" method=/shop.Search/Find tenant=\"\" peer=\"\" took=2s code=OK attempts=1 endpoint=a\n"
		if diff := cmp.Diff(out.String(), want); diff != "" {
			t.Errorf("(-got +want):\n%s", diff)
		}
		out.Reset()
		r.SetPolicies(policiesOf(t, "- {name: note, log: {slow: 1s, fields: {who: tenant}}}\n- {name: some, sample: 1}"))
		if _, err := ask(t.Context(), r, "x"); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"msg=call ", "policy=note slow=true who=\"\"", "msg=\"slow call\"", "msg=\"sampled call\""} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %s in:\n%s", want, out.String())
			}
		}
	})
}

// recorder is a tracer that keeps what it is told.
type recorder struct {
	noop.TracerProvider
	mu    sync.Mutex
	spans []*span
}

type span struct {
	noop.Span
	context, parent trace.SpanContext
	name            string
	status          otelcodes.Code
	attributes      map[attribute.Key]string
	ended           bool
}

func (r *recorder) Tracer(string, ...trace.TracerOption) trace.Tracer { return tracer{r: r} }

type tracer struct {
	noop.Tracer
	r *recorder
}

func (t tracer) Start(ctx context.Context, name string, _ ...trace.SpanStartOption) (context.Context, trace.Span) {
	parent := trace.SpanContextFromContext(ctx)
	t.r.mu.Lock()
	defer t.r.mu.Unlock()
	s := &span{name: name, parent: parent, attributes: map[attribute.Key]string{}}
	s.context = parent.WithSpanID(trace.SpanID{7: byte(len(t.r.spans) + 1)}).WithRemote(false)
	if !parent.IsValid() {
		s.context = s.context.WithTraceID(trace.TraceID{1})
	}
	t.r.spans = append(t.r.spans, s)
	return trace.ContextWithSpan(ctx, s), s
}

func (s *span) SpanContext() trace.SpanContext          { return s.context }
func (s *span) IsRecording() bool                       { return true }
func (s *span) SetStatus(code otelcodes.Code, _ string) { s.status = code }
func (s *span) End(...trace.SpanEndOption)              { s.ended = true }
func (s *span) SetAttributes(attrs ...attribute.KeyValue) {
	for _, a := range attrs {
		s.attributes[a.Key] = a.Value.String()
	}
}

const traceparent = "00-0123456789abcdef0123456789abcdef-00000000000000aa-01"

// A call's span is a child of the caller's, and the parent of the callee's.
func TestSpans(t *testing.T) {
	var seen metadata.MD
	q := newQuick(func(_ context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		m.Free()
		seen = h.Metadata
		return nil, call.End{}, errDown
	})
	rec := &recorder{}
	r := routedWith(t, Options{Tracer: rec}, "- {name: seen, trace: {fraction: 1, attributes: {who: tenant}}}", q)
	h := &call.Head{Method: find, Tenant: "gold", Metadata: metadata.Pairs("traceparent", traceparent, "tracestate", "a=b")}
	_, _, _ = r.ServeUnary(t.Context(), h, text("x"))
	s := rec.spans[0]
	if got := s.parent.TraceID().String() + "-" + s.parent.SpanID().String(); !strings.Contains(traceparent, got) {
		t.Errorf("the parent is %s", got)
	}
	if got, want := seen.Get("traceparent"), strings.Replace(traceparent, "00000000000000aa", "0000000000000001", 1); !slices.Equal(got, []string{want}) {
		t.Errorf("the callee got %q, want %q", got, want)
	}
	if got := seen.Get("tracestate"); !slices.Equal(got, []string{"a=b"}) {
		t.Errorf("the callee's state is %q", got)
	}
	if got := h.Metadata.Get("traceparent"); !slices.Equal(got, []string{traceparent}) {
		t.Errorf("the caller's own metadata was changed: %q", got)
	}
	want := map[attribute.Key]string{"who": "gold", "rpc.grpc.status_code": "14", "outboard.attempts": "1", "outboard.endpoint": "a", "outboard.policies": `["seen"]`}
	if diff := cmp.Diff(s.attributes, want); diff != "" || !s.ended || s.status != otelcodes.Error || s.name != "shop.Search/Find" {
		t.Errorf("ended %v, status %v, name %q (-got +want):\n%s", s.ended, s.status, s.name, diff)
	}
}

func TestNoSpans(t *testing.T) {
	var seen metadata.MD
	q := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		seen = h.Metadata
		return echo(ctx, h, m)
	})
	rec := &recorder{}
	for name, r := range map[string]*Router{
		"no tracer":    routed(t, "", q),
		"by a policy":  routedWith(t, Options{Tracer: rec}, "- {name: none, trace: {fraction: 0}}", q),
		"no parent":    nil,
		"bad parent":   nil,
		"in a process": nil,
	} {
		if r == nil {
			continue
		}
		h := &call.Head{Method: find, Metadata: metadata.Pairs("traceparent", traceparent)}
		if _, _, err := r.ServeUnary(t.Context(), h, text("x")); err != nil {
			t.Fatal(err)
		}
		if got := seen.Get("traceparent"); !slices.Equal(got, []string{traceparent}) || len(rec.spans) != 0 {
			t.Errorf("%s: the callee got %q, %d spans", name, got, len(rec.spans))
		}
	}
}

// Load reports in trailers reach the balancer, and the caller.
func TestReportsInTrailers(t *testing.T) {
	report, err := proto.Marshal(&orca.OrcaLoadReport{ApplicationUtilization: 0.7, RpsFractional: 10})
	if err != nil {
		t.Fatal(err)
	}
	q := newQuick(func(ctx context.Context, h *call.Head, m *call.Message) (*call.Message, call.End, error) {
		r, _, err := echo(ctx, h, m)
		return r, call.End{Trailer: metadata.Pairs(loadKey, string(report))}, err
	})
	f := newFake(func(s call.ServerStream) error {
		s.SetTrailer(metadata.Pairs(loadKey, string(report)))
		return echoes(s)
	})
	for name, tr := range map[string]call.Transport{"unary": q, "stream": f} {
		t.Run(name, func(t *testing.T) {
			r := routed(t, "", tr)
			s, err := callerOf(r).Open(t.Context(), &call.Head{Method: find, Streaming: name == "stream"})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Send(text("x")); err != nil {
				t.Fatal(err)
			}
			_ = s.CloseSend()
			_, _ = rest(s)
			if got := s.Trailer().Get(loadKey); !slices.Equal(got, []string{string(report)}) {
				t.Errorf("the caller got %q", got)
			}
			if got := r.Endpoints("shop.Search")[0].Utilization; got != 0.7 {
				t.Errorf("the balancer knows of %v", got)
			}
		})
	}
}

// orcaService serves reports as a back end that knows ORCA does.
func orcaService(t *testing.T, asked *atomic.Int64, utilization float64) *fake {
	return newFake(func(s call.ServerStream) error {
		m, err := s.Recv()
		if err != nil {
			return err
		}
		var request orcaservice.OrcaLoadReportRequest
		if err := proto.Unmarshal(m.Data, &request); err != nil || s.Head().Method != "/xds.service.orca.v3.OpenRcaService/StreamCoreMetrics" {
			return status.Errorf(codes.Unimplemented, "%s: %v", s.Head().Method, err)
		}
		asked.Add(1)
		for i := range 3 {
			data, err := proto.Marshal(&orca.OrcaLoadReport{ApplicationUtilization: utilization + float64(i)/10, RpsFractional: 1})
			if err != nil {
				return err
			}
			if err := s.Send(&call.Message{Data: data}); err != nil {
				return err
			}
			if !sleep(s.Context(), request.GetReportInterval().AsDuration()) {
				return s.Context().Err()
			}
		}
		return errDown
	})
}

func TestReportsOutOfBand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int64
		back := orcaService(t, &asked, 0.1)
		r := New(Options{})
		set := Service{Endpoints: endpointsOf(back)}
		set.Endpoints[0].Reports = OutOfBand(back, 10*time.Second)
		if err := r.SetService("shop.Search", set); err != nil {
			t.Fatal(err)
		}
		utilization := func() float64 { return r.Endpoints("shop.Search")[0].Utilization }
		for i, want := range []float64{0.1, 0.2, 0.3} {
			synctest.Wait()
			if got := utilization(); got < want-1e-9 || got > want+1e-9 {
				t.Errorf("report %d: %v, want %v", i, got, want)
			}
			// Another way to balance is told of the reports that follow.
			set.Balance.Choices = i + 1
			if err := r.SetService("shop.Search", set); err != nil {
				t.Fatal(err)
			}
			time.Sleep(10 * time.Second)
		}
		time.Sleep(time.Minute)
		if asked.Load() < 2 {
			t.Error("not asked again after the stream had ended")
		}
		if err := r.SetService("shop.Search", Service{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if back.opened.Load() != back.ended.Load() {
			t.Error("a removed endpoint is still asked")
		}
		r.Close()
	})
}

// A back end that does not know ORCA is asked once.
func TestNoReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		back := newFake(func(call.ServerStream) error { return status.Error(codes.Unimplemented, "no") })
		r := New(Options{})
		set := Service{Endpoints: endpointsOf(back), Balance: balance.Config{Method: balance.Weighted}}
		set.Endpoints[0].Reports = OutOfBand(back, 0)
		if err := r.SetService("shop.Search", set); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		if got := back.opened.Load(); got != 1 {
			t.Errorf("asked %d times", got)
		}
		r.Close()
	})
}

// FuzzReport feeds what a back end may write into its trailer and its reports.
func FuzzReport(f *testing.F) {
	good, err := proto.Marshal(&orca.OrcaLoadReport{ApplicationUtilization: 0.7, RpsFractional: 10, NamedMetrics: map[string]float64{"a": 1}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := balance.New(balance.Config{Method: balance.Weighted})
		if err != nil {
			t.Fatal(err)
		}
		now := time.Unix(1, 0)
		p.Update([]balance.Endpoint{{ID: "a"}, {ID: "b"}}, now)
		e := &endpoint{}
		for range 20 {
			now = now.Add(time.Second)
			picked, err := p.Pick(&call.Head{}, nil, now)
			if err != nil {
				t.Fatal(err)
			}
			picked.Done(balance.Outcome{Load: e.reportOf(metadata.MD{loadKey: {string(data)}}, now)}, now)
			_, _ = reportIn(&call.Message{Data: data})
		}
		for _, s := range p.Status(now) {
			if !(s.Weight > 0.05 && s.Weight < 0.95) {
				t.Fatalf("%s has a weight of %v", s.ID, s.Weight)
			}
		}
	})
}
