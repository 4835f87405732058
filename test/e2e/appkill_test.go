//go:build conformance

package e2e

import "testing"

// A thousand executions on nodes that are killed at random all end, and none does
// twice what was recorded.
func TestConformanceAppKills(t *testing.T) {
	_, nodes := appPool(t)
	outliveKills(t, nodes, 1000, 20)
}
