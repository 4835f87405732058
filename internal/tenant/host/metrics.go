package host

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/outboard-run/outboard"
)

// gatherLimit is how long the processes may take to return their metrics.
const gatherLimit = 2 * time.Second

// maxMetrics bounds the metrics of a process in bytes; decoded they take some twenty times as much.
const maxMetrics = 8 << 20

// tenantLabel is the label added to the metrics of a tenant's process.
const tenantLabel = "tenant"

// Gather implements prometheus.Gatherer: the metrics of all processes that are ready,
// each with its tenant.
func (h *Host) Gather() ([]*dto.MetricFamily, error) {
	ctx, cancel := context.WithTimeout(h.life, gatherLimit)
	defer cancel()
	all := map[string]*dto.MetricFamily{}
	for _, name := range h.ready() {
		families, err := h.metricsOf(ctx, name)
		if err != nil {
			h.log.Debug("a tenant's metrics are missing", "tenant", name, "error", err)
			continue
		}
		for _, f := range families {
			label(f, name)
			switch have := all[f.GetName()]; {
			case have == nil:
				all[f.GetName()] = f
			case have.GetType() == f.GetType():
				have.Metric = append(have.Metric, f.GetMetric()...)
			default:
				h.log.Debug("a metric of a tenant is missing", "tenant", name, "metric", f.GetName(), "type", f.GetType())
			}
		}
	}
	var list []*dto.MetricFamily
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list = append(list, all[name])
	}
	return list, nil
}

// label labels a family's metrics with their tenant.
func label(f *dto.MetricFamily, tenant string) {
	for _, m := range f.GetMetric() {
		m.Label = slices.DeleteFunc(m.Label, func(l *dto.LabelPair) bool { return l.GetName() == tenantLabel })
		m.Label = append(m.Label, &dto.LabelPair{Name: new(tenantLabel), Value: new(tenant)})
		slices.SortFunc(m.Label, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	}
}

// ready returns the tenants whose process is ready.
func (h *Host) ready() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var names []string
	for name, k := range h.tenants {
		if k.isReady() {
			names = append(names, name)
		}
	}
	return names
}

func (h *Host) metricsOf(ctx context.Context, name string) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, address("/metrics"), nil)
	if err != nil {
		return nil, err
	}
	response, err := h.client(name).Do(request)
	if err != nil {
		return nil, outboard.Errorf(outboard.Unreachable, "", "%w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %s", response.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	return parser.TextToMetricFamilies(http.MaxBytesReader(nil, response.Body, maxMetrics))
}
