package calls

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/client"
)

// mergeCalls adds the rows of another process.
func mergeCalls(rows, more []client.Calls) []client.Calls {
	for _, m := range more {
		at := slices.IndexFunc(rows, func(r client.Calls) bool { return r.Service == m.Service && r.Method == m.Method })
		if at < 0 {
			rows = append(rows, m)
			continue
		}
		r := &rows[at]
		r.Acted = maps.Clone(r.Acted)
		if m.Rate > r.Rate {
			r.P50, r.P99 = m.P50, m.P99 // percentiles of the process with more calls
		}
		r.Rate, r.Errors, r.Sent, r.Received = r.Rate+m.Rate, r.Errors+m.Errors, r.Sent+m.Sent, r.Received+m.Received
		r.InFlight, r.Total = r.InFlight+m.InFlight, r.Total+m.Total
		for policy, n := range m.Acted {
			if r.Acted == nil {
				r.Acted = map[string]uint64{}
			}
			r.Acted[policy] += n
		}
	}
	slices.SortFunc(rows, func(a, b client.Calls) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Method, b.Method))
	})
	return rows
}

// mergePolicies adds up counts by the policies' names. others: also of policies that list lacks.
func mergePolicies(list, more []client.Policy, others bool) []client.Policy {
	for _, m := range more {
		at := slices.IndexFunc(list, func(p client.Policy) bool { return p.Name == m.Name && p.Kind == m.Kind })
		switch {
		case at >= 0:
			p := &list[at]
			p.Calls, p.Acted, p.Refused, p.Failed = p.Calls+m.Calls, p.Acted+m.Acted, p.Refused+m.Refused, p.Failed+m.Failed
		case others:
			list = append(list, m)
		}
	}
	return list
}

// mergeFamilies adds up metrics that have the same name and labels. Without gauges, metrics
// of that type are left out: they are the state of a process that has ended.
func mergeFamilies(all, more map[string]*dto.MetricFamily, gauges bool) map[string]*dto.MetricFamily {
	if all == nil {
		all = map[string]*dto.MetricFamily{}
	}
	for name, m := range more {
		if !gauges && m.GetType() == dto.MetricType_GAUGE {
			continue
		}
		f := all[name]
		if f == nil {
			all[name] = proto.CloneOf(m)
			continue
		}
		if f.GetType() == m.GetType() {
			f.Metric = mergeMetrics(f.Metric, m.GetMetric())
		}
	}
	return all
}

func mergeMetrics(list, more []*dto.Metric) []*dto.Metric {
	known := make(map[string]*dto.Metric, len(list))
	for _, m := range list {
		known[labelsOf(m)] = m
	}
	for _, m := range more {
		if to := known[labelsOf(m)]; to != nil {
			addMetric(to, m)
		} else {
			list = append(list, proto.CloneOf(m))
		}
	}
	return list
}

func labelsOf(m *dto.Metric) string {
	pairs := make([]string, 0, len(m.GetLabel()))
	for _, l := range m.GetLabel() {
		pairs = append(pairs, fmt.Sprintf("%q=%q", l.GetName(), l.GetValue()))
	}
	slices.Sort(pairs)
	return strings.Join(pairs, ",")
}

func addMetric(to, m *dto.Metric) {
	switch {
	case to.GetCounter() != nil:
		to.Counter.Value = new(to.GetCounter().GetValue() + m.GetCounter().GetValue())
	case to.GetGauge() != nil:
		to.Gauge.Value = new(to.GetGauge().GetValue() + m.GetGauge().GetValue())
	case to.GetUntyped() != nil:
		to.Untyped.Value = new(to.GetUntyped().GetValue() + m.GetUntyped().GetValue())
	case to.GetHistogram() != nil:
		addHistogram(to.GetHistogram(), m.GetHistogram())
	}
}

func addHistogram(to, m *dto.Histogram) {
	to.SampleCount = new(to.GetSampleCount() + m.GetSampleCount())
	to.SampleSum = new(to.GetSampleSum() + m.GetSampleSum())
	counts := map[float64]uint64{}
	for _, b := range m.GetBucket() {
		counts[b.GetUpperBound()] = b.GetCumulativeCount()
	}
	for _, b := range to.GetBucket() {
		b.CumulativeCount = new(b.GetCumulativeCount() + counts[b.GetUpperBound()])
	}
}

// sortedFamilies returns metrics by name.
func sortedFamilies(families map[string]*dto.MetricFamily) []*dto.MetricFamily {
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
}
