package dsl

import (
	"strconv"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// maxDuration bounds the durations of a workflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// isoDuration matches durations of ISO 8601 without years and months, whose length varies.
var isoDuration = lazyregexp.New(`^P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?$`)

var isoUnits = []time.Duration{7 * 24 * time.Hour, 24 * time.Hour, time.Hour, time.Minute, time.Second}

var durationUnits = map[string]time.Duration{
	"days": 24 * time.Hour, "hours": time.Hour, "minutes": time.Minute, "seconds": time.Second, "milliseconds": time.Millisecond,
}

// duration parses {seconds: 3, ...} or a text of ISO 8601, "PT3S".
func (r *yamlReader) duration(n *yaml.Node, subject string) time.Duration {
	if n.Kind == yaml.ScalarNode && n.ShortTag() == "!!str" {
		d, ok := parseISO(n.Value)
		if !ok {
			r.report(n, "%s %q must be a duration of ISO 8601 in weeks, days, hours, minutes and seconds, such as \"PT1M30S\", or {minutes: 1, seconds: 30}", subject, n.Value)
		}
		return d
	}
	f, ok := r.mapping(n, subject, []string{"days", "hours", "minutes", "seconds", "milliseconds"}, nil)
	if !ok {
		return 0
	}
	var sum float64
	for unit, value := range f.keys {
		sum += float64(r.integer(value, subject+"."+unit, 0, 1e12)) * float64(durationUnits[unit])
	}
	if len(f.keys) == 0 {
		r.report(n, "%s is empty: write {seconds: 10}", subject)
	}
	if sum > float64(maxDuration) {
		r.report(n, "%s is more than ten years", subject)
		return 0
	}
	return time.Duration(sum)
}

func parseISO(text string) (time.Duration, bool) {
	m := isoDuration.FindStringSubmatch(text)
	if m == nil || text[len(text)-1] == 'P' || text[len(text)-1] == 'T' {
		return 0, false
	}
	var sum float64
	for i, unit := range isoUnits {
		if m[i+1] == "" {
			continue
		}
		v, err := strconv.ParseFloat(m[i+1], 64)
		if err != nil {
			return 0, false
		}
		sum += v * float64(unit)
	}
	return time.Duration(sum), sum <= float64(maxDuration)
}
