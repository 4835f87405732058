package node

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registerRefused registers a counter of refused peers.
func registerRefused(registry *prometheus.Registry) *prometheus.CounterVec {
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "outboard_node_peers_refused_total", Help: "Connections of other nodes that were turned away, by the kind of the error.",
	}, []string{"kind"})
	registry.MustRegister(refused)
	return refused
}

// registerProcess registers the metrics that every process has.
func registerProcess(registry *prometheus.Registry, version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outboard_build_info", Help: "1, with the build in its labels.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
