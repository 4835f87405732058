package calls

import (
	"cmp"
	"encoding/gob"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"

	"github.com/outboard-run/outboard/client"
)

// A ledger is what processes have counted. That of a process that has ended is added
// to what its successors count, so that no number falls at an upgrade.
type ledger struct {
	Calls    []client.Calls
	Policies []client.Policy
	// Metrics are in Prometheus's text format.
	Metrics []byte

	families map[string]*dto.MetricFamily
}

// add adds another one. Rates and what is in flight end with their process.
func (l *ledger) add(m *ledger) {
	for i := range m.Calls {
		c := &m.Calls[i]
		*c = client.Calls{Service: c.Service, Method: c.Method, Total: c.Total, Acted: c.Acted}
	}
	l.Calls = merge(l.Calls, m.Calls)
	l.Policies = mergePolicies(l.Policies, m.Policies, true)
	l.families = mergeFamilies(l.families, m.families, false)
}

// mergePolicies adds counts by the policies' names. others: also those that list has not.
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

// mergeFamilies adds metrics up that have the same name and labels. gauges: those too;
// else they are left out, as what a process that has ended no longer has.
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

func inOrder(families map[string]*dto.MetricFamily) []*dto.MetricFamily {
	return slices.SortedFunc(maps.Values(families), func(a, b *dto.MetricFamily) int { return cmp.Compare(a.GetName(), b.GetName()) })
}

// mostHanded bounds what a process hands over in a file.
const mostHanded = 256 << 20

// fileOf writes v into a file that exists only for those who have it.
func fileOf(name string, v any) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("hand over %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if err := gob.NewEncoder(f).Encode(v); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("hand over %s: %w", name, err)
	}
	return f, nil
}

// readFile reads what fileOf has written, and closes the file.
func readFile(f *os.File, v any) error {
	if f == nil {
		return errNoFile
	}
	defer f.Close()
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("take over %s: %w", f.Name(), err)
	}
	if err := gob.NewDecoder(io.LimitReader(f, mostHanded)).Decode(v); err != nil {
		return fmt.Errorf("take over %s: %w", f.Name(), err)
	}
	return nil
}
