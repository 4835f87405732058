package need

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

var (
	metricName   = regexp.MustCompile("`(outboard_[a-z_]+|_[a-z_]+)[`{]")
	metricSuffix = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// Documented fails the test for each metric of this project that has no row in the tables of a
// document. A row with several metrics may write their common prefix only once:
// `outboard_pool_nodes`, `_leases`.
func Documented(t testing.TB, document string, metrics []string) {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		row := ""
		if cells := strings.Split(line, "|"); len(cells) > 2 {
			row = cells[1]
		}
		full := ""
		for _, m := range metricName.FindAllStringSubmatch(row, -1) {
			name := m[1]
			if strings.HasPrefix(name, "outboard_") {
				full, known[name] = name, true
				continue
			}
			for i := range full {
				known[full[:i]+name] = true
			}
		}
	}
	found := 0
	for _, name := range metrics {
		if !strings.HasPrefix(name, "outboard_") {
			continue
		}
		if found++; !known[metricSuffix.ReplaceAllString(name, "")] && !known[name] {
			t.Errorf("%s has no row for %s", document, name)
		}
	}
	if found == 0 {
		t.Error("the test passed no metric of this project: does it still gather the right registry?")
	}
}
