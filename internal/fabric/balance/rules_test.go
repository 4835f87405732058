package balance

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const rulesFile = `# a file
balance:
- services: ["shop.*"]
  method: weighted
  slow_start: {window: 30s}
  locality: {node: any}
- services: [a.B]
  method: round_robin
  subset: {size: 8}
policies:
- name: first
`

func TestRules(t *testing.T) {
	policies, r, err := SplitRules("f", []byte(rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("\n", 9) + "policies:\n- name: first\n"
	if got := strings.Replace(string(policies), "# a file", "", 1); got != want {
		t.Errorf("policies: %q, want %q", got, want)
	}
	type facts struct {
		Method Method
		Window time.Duration
		Node   string
		Subset Subset
	}
	for service, want := range map[string]facts{
		"shop.Cart": {Weighted, 30 * time.Second, "", Subset{Client: "harbour"}},
		"a.B":       {RoundRobin, 0, "harbour", Subset{Size: 8, Client: "harbour"}},
		"other":     {LeastRequests, 0, "harbour", Subset{Client: "harbour"}},
	} {
		c := r.For(service, "harbour")
		if diff := cmp.Diff(want, facts{c.Method, c.SlowStart.Window, c.Locality.Node, c.Subset}); diff != "" {
			t.Errorf("%s: %s", service, diff)
		}
	}
}

func TestRulesRefused(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"unknown key":    {"policies: []\nbalance:\n- metod: weighted\n", "f:3:1: balance: field metod not found"},
		"unknown method": {"balance:\n- method: best\n", "f:2:11: balance: method: \"best\": use round_robin"},
		"no pattern":     {"balance:\n- services: ['[']\n", "f:2:13: balance: services: \"[\" is no pattern"},
		"no services":    {"balance:\n- services: []\n", "f:2:13: balance: services: this list is empty"},
		"nothing":        {"# all is gone\n", "f:1:1: the file is empty: write `policies: []`"},
		"default, nested": {
			"policies: []\nbalance:\n- method: weighted\n  ejection: {consecutive: 3,\n    base: 0s}\n",
			"f:5:11: balance: ejection.base: zero stands for the default here, 30s",
		},
		"default":          {"balance:\n- choices: 0\n", "f:2:12: balance: choices: zero stands for the default here, 2"},
		"default of alias": {"balance:\n- &a {choices: 0}\n- *a\n", "f:2:16: balance: choices: zero"},
		"below zero":       {"balance:\n- subset:\n    size: -1\n", "f:3:11: balance: subset.size: it is below zero"},
		"no limit":         {"balance:\n- ejection: {}\n", "f:2:13: balance: ejection: without consecutive or success_rate above zero"},
		"limits of zero":   {"balance:\n- ejection: {consecutive: 0, base: 3s}\n", "f:2:13: balance: ejection: without consecutive or success_rate above zero"},
		"short longest":    {"balance:\n- ejection: {consecutive: 1, longest: 3s}\n", "f:2:39: balance: ejection.longest: 3s is below base, which is 30s"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := SplitRules("f", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

// Zero is a value of the settings of which it switches something off.
func TestZeroSwitchesOff(t *testing.T) {
	const text = "balance:\n- {subset: {size: 0}, slow_start: {window: 0s}, ejection: {consecutive: 0, success_rate: 1900}}\n- ejection: {consecutive: 3, base: 10m}\n"
	if _, _, err := SplitRules("f", []byte(text)); err != nil {
		t.Error(err)
	}
}

// The policies of a file whose rules can't be read are returned: a node that has just started puts
// those in force that reject calls.
func TestPoliciesBesideWrongRules(t *testing.T) {
	policies, _, err := SplitRules("f", []byte("balance:\n- metod: x\npolicies: []\n"))
	if got := string(policies); err == nil || got != "\n\npolicies: []\n" {
		t.Errorf("got %q, %v", got, err)
	}
}

func FuzzSplitRules(f *testing.F) {
	f.Add([]byte(rulesFile))
	f.Add([]byte("balance:\n  - x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		policies, _, err := SplitRules("f", text)
		if err == nil && strings.Count(string(policies), "\n") < strings.Count(string(text), "\n") {
			t.Error("lines are gone: errors would name others")
		}
	})
}
