// Package metricstest compares gathered Prometheus metrics with an expected text.
//
// It implements the part of client_golang's testutil that tests need, since testutil brings another
// module into the graph of every module that imports this one.
package metricstest

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// Compare gathers the metrics called names, or all if there are no names, and returns an error that
// shows both texts unless the metrics equal those of want, in the text exposition format.
func Compare(from prometheus.Gatherer, want io.Reader, names ...string) error {
	got, err := text(from, names)
	if err != nil {
		return err
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(want)
	if err != nil {
		return fmt.Errorf("parse the wanted metrics: %w", err)
	}
	registry := prometheus.GathererFunc(func() (all []*dto.MetricFamily, err error) {
		for _, f := range families {
			all = append(all, f)
		}
		return all, nil
	})
	wanted, err := text(registry, names)
	if err != nil {
		return err
	}
	if got != wanted {
		return fmt.Errorf("metrics differ: got\n%s\nwant\n%s", got, wanted)
	}
	return nil
}

// Count returns the number of metrics, not families, called names, or of all metrics if there are
// no names.
func Count(from prometheus.Gatherer, names ...string) (int, error) {
	families, err := gather(from, names)
	n := 0
	for _, f := range families {
		n += len(f.GetMetric())
	}
	return n, err
}

// text returns the metrics in the text exposition format, sorted by line.
func text(from prometheus.Gatherer, names []string) (string, error) {
	families, err := gather(from, names)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			return "", fmt.Errorf("write metrics: %w", err)
		}
	}
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	slices.Sort(lines)
	return strings.Join(lines, "\n"), nil
}

func gather(from prometheus.Gatherer, names []string) ([]*dto.MetricFamily, error) {
	families, err := from.Gather()
	if err != nil {
		return nil, fmt.Errorf("gather metrics: %w", err)
	}
	if len(names) == 0 {
		return families, nil
	}
	return slices.DeleteFunc(families, func(f *dto.MetricFamily) bool { return !slices.Contains(names, f.GetName()) }), nil
}
