package policy

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestGlob(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringOfN(rapid.SampledFrom([]rune("ab.*")), 0, 6, -1).Draw(t, "pattern")
		s := rapid.StringOfN(rapid.SampledFrom([]rune("ab.")), 0, 8, -1).Draw(t, "s")
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$").MatchString(s)
		g := newGlob(pattern)
		if got := g.match(s); got != want {
			t.Fatalf("%q and %q: got %v, want %v", pattern, s, got, want)
		}
	})
}

// TestAccessTable compares the tables of access rules with going through the rules.
func TestAccessTable(t *testing.T) {
	word := rapid.SampledFrom([]string{"a", "b", "c", "a*", "*b", "*"})
	name := rapid.SampledFrom([]string{"a", "b", "c", "ab", "ba", "aab", ""})
	rapid.Check(t, func(t *rapid.T) {
		type rule struct {
			allow            bool
			tenants, methods []string
		}
		var rules []rule
		text := "policies:\n- name: x\n  access:\n    default: deny\n    rules:\n"
		for range rapid.IntRange(0, 80).Draw(t, "rules") {
			r := rule{rapid.Bool().Draw(t, "allow"), rapid.SliceOfN(word, 0, 2).Draw(t, "tenants"), rapid.SliceOfN(word, 0, 2).Draw(t, "methods")}
			rules = append(rules, r)
			text += fmt.Sprintf("    - %s: {%s}\n", map[bool]string{true: "allow", false: "deny"}[r.allow], membersText(r.tenants, r.methods))
		}
		if len(rules) == 0 {
			text += "      []\n"
		}
		s, err := Parse("x", []byte(text), nil)
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			tenant, method := name.Draw(t, "tenant"), name.Draw(t, "method")
			want := false
			for _, r := range rules {
				if matches(r.tenants, tenant) && matches(r.methods, method) {
					want = r.allow
					break
				}
			}
			_, err := (&visit{tenant: tenant, method: "/s/" + method}).run(s)
			if got := err == nil; got != want {
				t.Fatalf("tenant %q, method %q: got %v, want %v\n%s", tenant, method, got, want, text)
			}
		}
	})
}

// membersText writes the members of a rule that restrict it.
func membersText(tenants, methods []string) string {
	var text []string
	for name, list := range map[string][]string{"tenants": tenants, "methods": methods} {
		if len(list) > 0 {
			text = append(text, name+": "+quoted(list))
		}
	}
	return strings.Join(text, ", ")
}

func matches(patterns []string, s string) bool {
	var g globs
	for _, p := range patterns {
		g = append(g, newGlob(p))
	}
	return g.match(s)
}

func quoted(list []string) string {
	var words []string
	for _, s := range list {
		words = append(words, fmt.Sprintf("%q", s))
	}
	return "[" + strings.Join(words, ", ") + "]"
}
