package function

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/function/image"
)

// tally sums the counts of all versions of a function, closed ones among them.
type tally struct {
	Counts
	cold     int64 // deployed: instantiated and initialised
	slots    int   // idle
	resident int64 // bytes that the idle slots keep to themselves
}

func (t *tally) add(f *Function) {
	t.cold++
	t.merge(f.Counts())
	slots, resident := f.Idle()
	t.slots += slots
	t.resident += int64(resident)
}

// tallies has the counts of closed functions, so that no counter decreases.
type tallies struct {
	mu     sync.Mutex
	closed map[string]*tally
}

func (t *tallies) addClosed(f *Function) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		t.closed = make(map[string]*tally)
	}
	tallyOf(t.closed, f.Name()).add(f)
}

func tallyOf(all map[string]*tally, name string) *tally {
	if all[name] == nil {
		all[name] = new(tally)
	}
	return all[name]
}

// tally adds up the counts of all functions.
func (r *Runtime) tally() map[string]*tally {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.past.mu.Lock()
	defer r.past.mu.Unlock()
	all := make(map[string]*tally)
	for name, t := range r.past.closed {
		copied := *t
		all[name] = &copied
	}
	for f := range r.open {
		tallyOf(all, f.Name()).add(f)
	}
	return all
}

// metric is one number of a tally.
type metric struct {
	desc  *prometheus.Desc
	kind  prometheus.ValueType
	label string // the value of its second label
	value func(t *tally) int64
	unit  float64 // the unit of the value, in the metric's unit
}

// collector exports the counts of a runtime when it is scraped. Calls do no work for it.
type collector struct {
	runtime *Runtime
	metrics []metric
}

func newCollector(r *Runtime) *collector {
	c := &collector{runtime: r}
	starts := describe("starts_total", "Instances that calls began with: cold ones were initialised at deploy, cloned ones are new, reset ones served before.", "start")
	c.count(starts, "cold", func(t *tally) int64 { return t.cold })
	c.count(starts, "cloned", func(t *tally) int64 { return t.Cloned })
	c.count(starts, "reset", func(t *tally) int64 { return t.Reset })
	pages := describe("reset_pages_total", "Pages of memory that resets copied back, or gave back to the kernel.", "how")
	c.count(pages, "copied", func(t *tally) int64 { return t.CopiedBack / image.PageSize })
	c.count(pages, "dropped", func(t *tally) int64 { return t.Dropped / image.PageSize })
	bytes := describe("bytes_total", "Bytes of requests, responses and imports, by the way that they went.", "way")
	c.count(bytes, "pointer", func(t *tally) int64 { return t.Pointer })
	c.count(bytes, "copy", func(t *tally) int64 { return t.Copied })
	ends := describe("failures_total", "Calls that failed, by cause.", "cause")
	c.count(ends, "limit", func(t *tally) int64 { return t.Limited })
	c.count(ends, "trap", func(t *tally) int64 { return t.Trapped })
	c.count(ends, "caller", func(t *tally) int64 { return t.Gone })
	c.count(ends, "function", func(t *tally) int64 { return t.Failed - t.Limited - t.Trapped - t.Gone })
	c.count(describe("refused_total", "Calls beyond the queue."), "", func(t *tally) int64 { return t.Refused })
	c.count(describe("rebuilt_total", "Instances that could not be reset."), "", func(t *tally) int64 { return t.Rebuilt })
	c.count(describe("quiet_resets_total", "Resets that did not have to look for written pages."), "", func(t *tally) int64 { return t.Quiet })
	c.count(describe("fuel_total", "Instructions that calls were charged."), "", func(t *tally) int64 { return t.Fuel })
	c.count(describe("window_maps_total", "Mappings that the windows of instances needed."), "", func(t *tally) int64 { return t.Maps })
	c.add(describe("run_seconds_total", "How long calls ran."), prometheus.CounterValue, func(t *tally) int64 { return t.Ran }, 1e-9)
	c.add(describe("idle_slots", "Instances that wait for calls."), prometheus.GaugeValue, func(t *tally) int64 { return int64(t.slots) }, 1)
	c.add(describe("idle_bytes", "Memory that waiting instances keep to themselves."), prometheus.GaugeValue, func(t *tally) int64 { return t.resident }, 1)
	return c
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("outboard_function_"+name, help, append([]string{"function"}, labels...), nil)
}

func (c *collector) count(d *prometheus.Desc, label string, value func(t *tally) int64) {
	c.metrics = append(c.metrics, metric{d, prometheus.CounterValue, label, value, 1})
}

func (c *collector) add(d *prometheus.Desc, kind prometheus.ValueType, value func(t *tally) int64, unit float64) {
	c.metrics = append(c.metrics, metric{d, kind, "", value, unit})
}

// Describe implements prometheus.Collector.
func (c *collector) Describe(to chan<- *prometheus.Desc) {
	var last *prometheus.Desc
	for _, m := range c.metrics {
		if m.desc != last {
			to <- m.desc
		}
		last = m.desc
	}
}

// Collect implements prometheus.Collector.
func (c *collector) Collect(to chan<- prometheus.Metric) {
	for name, t := range c.runtime.tally() {
		for _, m := range c.metrics {
			labels := []string{name}
			if m.label != "" {
				labels = append(labels, m.label)
			}
			to <- prometheus.MustNewConstMetric(m.desc, m.kind, float64(m.value(t))*m.unit, labels...)
		}
	}
}
