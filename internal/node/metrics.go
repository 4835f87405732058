package node

import (
	"runtime"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// registerProcess adds what every process has to tell.
func registerProcess(registry *prometheus.Registry, version string) {
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "outboard_build_info", Help: "1, with the build in its labels.",
		ConstLabels: prometheus.Labels{"version": version, "go": runtime.Version()},
	})
	info.Set(1)
	registry.MustRegister(info, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
}
