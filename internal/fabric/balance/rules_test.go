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
		"unknown key":    {"policies: []\nbalance:\n- metod: weighted\n", "f:3: balance: field metod not found"},
		"unknown method": {"balance:\n- method: best\n", "rule 1: balance: method \"best\": use round_robin"},
		"no pattern":     {"balance:\n- services: ['[']\n", "is no pattern"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, _, err := SplitRules("f", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
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
