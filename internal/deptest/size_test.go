package deptest

import "testing"

// A type with more than thirty methods, or a package that imports more than a dozen others
// of the module, is several things.
func TestSize(t *testing.T) {
	packages, err := Load("../..", module)
	if err != nil {
		t.Fatal(err)
	}
	limits := Limits{Methods: 30, Imports: 12, Exempt: map[string]string{
		"internal/node":   "joins all planes",
		"internal/cli":    "has a command for each thing that a node does",
		"internal/calls":  "composes the process that carries calls",
		"internal/tenant": "composes a tenant's process",
		"client.Client":   "has a method for each request of the node's API",
		"bench/fabric":    "measures every layer of the fabric",
		"bench/function":  "measures functions, workflows and what is between",
	}}
	for _, line := range CheckSize(packages, limits) {
		t.Error(line)
	}
}
