package tenant

import (
	"regexp"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboard-run/outboard/internal/need"
)

// The manual explains all metrics that a tenant's process has, those that have no value
// yet included.
func TestMetricsAreDocumented(t *testing.T) {
	b := openTenant(t)
	all := make(chan *prometheus.Desc)
	go func() {
		b.tenant.metrics.Describe(all)
		close(all)
	}()
	name := regexp.MustCompile(`fqName: "([^"]*)"`)
	var names []string
	for d := range all {
		names = append(names, name.FindStringSubmatch(d.String())[1])
	}
	need.Documented(t, "../../docs/operations.md", names)
}
