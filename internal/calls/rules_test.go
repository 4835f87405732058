package calls

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard/internal/fabric/balance"
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
	policies, r, err := split("f", []byte(rulesFile))
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Repeat("\n", 9) + "policies:\n- name: first\n"
	if got := strings.Replace(string(policies), "# a file", "", 1); got != want {
		t.Errorf("policies: %q, want %q", got, want)
	}
	type facts struct {
		Method balance.Method
		Window time.Duration
		Node   string
		Subset balance.Subset
	}
	for service, want := range map[string]facts{
		"shop.Cart": {balance.Weighted, 30 * time.Second, "", balance.Subset{Client: "harbour"}},
		"a.B":       {balance.RoundRobin, 0, "harbour", balance.Subset{Size: 8, Client: "harbour"}},
		"other":     {balance.LeastRequests, 0, "harbour", balance.Subset{Client: "harbour"}},
	} {
		c := r.of(service, "harbour")
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
			if _, _, err := split("f", []byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte(rulesFile))
	f.Add([]byte("balance:\n  - x\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		policies, _, err := split("f", text)
		if err == nil && strings.Count(string(policies), "\n") < strings.Count(string(text), "\n") {
			t.Error("lines are gone: errors would name others")
		}
	})
}
