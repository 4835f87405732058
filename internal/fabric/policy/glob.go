package policy

import "strings"

// A selector selects the calls that a policy applies to.
type selector struct{ services, methods, tenants globs }

func (s *selector) match(service, method, tenant string) bool {
	return s.services.match(service) && s.methods.match(method) && s.tenants.match(tenant)
}

// globs match a text that at least one of them matches. Empty globs match every text.
type globs []glob

func (g globs) match(s string) bool {
	for i := range g {
		if g[i].match(s) {
			return true
		}
	}
	return len(g) == 0
}

func (g globs) texts() []string {
	var texts []string
	for i := range g {
		texts = append(texts, g[i].text)
	}
	return texts
}

// A glob is a pattern in which * stands for any characters, none included.
type glob struct {
	text  string
	parts []string // text between the stars; a single part: no star
}

func newGlob(text string) glob { return glob{text, strings.Split(text, "*")} }

func (g *glob) match(s string) bool {
	first, last := g.parts[0], g.parts[len(g.parts)-1]
	if len(g.parts) == 1 {
		return s == first
	}
	if len(s) < len(first)+len(last) || !strings.HasPrefix(s, first) || !strings.HasSuffix(s, last) {
		return false
	}
	s = s[len(first) : len(s)-len(last)]
	for _, part := range g.parts[1 : len(g.parts)-1] {
		_, after, ok := strings.Cut(s, part)
		if !ok {
			return false
		}
		s = after
	}
	return true
}

// exact returns the only text that the glob matches, or false if it has a star.
func (g *glob) exact() (string, bool) { return g.parts[0], len(g.parts) == 1 }
