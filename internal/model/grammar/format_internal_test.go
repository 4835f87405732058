package grammar

import (
	"math/rand/v2"
	"net/mail"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
)

// draw appends a random text that an expression without references matches.
func draw(r *rand.Rand, b *strings.Builder, n node) { drawWith(r, b, n, nil) }

// drawWith appends a random text that an expression matches, given the rules to which it refers.
func drawWith(r *rand.Rand, b *strings.Builder, n node, rules map[string]node) {
	switch n := n.(type) {
	case ref:
		drawWith(r, b, rules[string(n)], rules)
	case literal:
		b.WriteString(string(n))
	case charset:
		class := regexp.MustCompile("^" + string(n) + "$")
		for {
			if c := string(rune(' ' + r.IntN(0x100-' '))); class.MatchString(c) {
				b.WriteString(c)
				return
			}
		}
	case sequence:
		for _, part := range n {
			drawWith(r, b, part, rules)
		}
	case choice:
		drawWith(r, b, n[r.IntN(len(n))], rules)
	case repeated:
		most := n.max
		if most < 0 {
			most = n.min + 3
		}
		for range n.min + r.IntN(most-n.min+1) {
			drawWith(r, b, n.node, rules)
		}
	}
}

// Each text of a format's expression is one of the format, by parsers of others.
func TestFormats(t *testing.T) {
	layout := func(layout string) func(string) error {
		return func(s string) error { _, err := time.Parse(layout, s); return err }
	}
	match := func(pattern string) func(string) error {
		return func(s string) error {
			if !regexp.MustCompile(pattern).MatchString(s) {
				t.Errorf("%q does not match %s", s, pattern)
			}
			return nil
		}
	}
	address := func(s string) error { _, err := netip.ParseAddr(s); return err }
	checks := map[string]func(string) error{
		"date": layout(time.DateOnly), "time": layout("15:04:05Z07:00"), "date-time": layout(time.RFC3339),
		"ipv4": address, "ipv6": address,
		"email":    func(s string) error { _, err := mail.ParseAddress(s); return err },
		"uri":      func(s string) error { _, err := url.ParseRequestURI(s); return err },
		"uuid":     match(`^[0-9a-f]{8}-[0-9a-f]{4}-[1-8][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`),
		"duration": match(`^P(\d+D|T\d+[HMS])$`),
		"hostname": match(`^([a-z][a-z0-9]*(-[a-z0-9]+)?\.)+[a-z]{2,}$`),
	}
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // texts for a test
	for name, n := range formats() {
		check := checks[name]
		if check == nil {
			t.Errorf("%s has no check", name)
			continue
		}
		for range 200 {
			var b strings.Builder
			draw(r, &b, n)
			if err := check(b.String()); err != nil {
				t.Errorf("%s: %q: %v", name, b.String(), err)
			}
			if shortest, longest := lengths(n); b.Len() < shortest || b.Len() > longest {
				t.Errorf("%s: %q has not %d to %d characters", name, b.String(), shortest, longest)
			}
		}
	}
}
