package grammar

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// patterns have the lengths of texts that are drawn from them, 0 for those without limits.
var patterns = []string{ //nolint:gochecknoglobals // a table
	`^[a-z]{1,8}$`, `^a|b$`, `^(a|b)c$`, `^$|^[0-9]+$`, `x\.y`, `^ab.*`, `^[^A-Z]*$`, `^\d{4}-\d{2}$`, `^\+[1-9]\d{6,14}$`, `^[\w.-]+@[\w-]+\.com$`,
	`^(https?|ftp)://[^\s/]+/?$`, `^"quoted\\"\n$`, `^\u0041[\u00e4-\u00fc]$`, `^$`, `^`, `$`, ``, `^(?:(?:a|bc){2}){1,3}$`, `^\S+\s\S+$`, `^[\]\[^-]+$`, `^\x41\/$`, `(^a|b)c`, `^[cC][xX]1$`, `^.{0,5}$`,
}

// TestPatterns: texts that a pattern's expression matches, as JSON, match the pattern.
func TestPatterns(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // texts for a test
	for _, pattern := range patterns {
		translated, err := translate(pattern)
		if err != nil {
			t.Fatal(err)
		}
		want := regexp.MustCompile(translated)
		re, err := parsePattern(pattern)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		shortest, longest := textLengths(re)
		n, err := patternNode(re)
		if err != nil {
			t.Errorf("%s: %v", pattern, err)
			continue
		}
		for range 100 {
			var b strings.Builder
			draw(r, &b, n)
			var text string
			if err := json.Unmarshal([]byte(`"`+b.String()+`"`), &text); err != nil || !want.MatchString(text) {
				t.Errorf("%s: it generates %s: %v", pattern, b.String(), err)
			}
			if length := utf8.RuneCountInString(text); length < shortest || longest >= 0 && length > longest {
				t.Errorf("%s: %q has not %d to %d characters", pattern, text, shortest, longest)
			}
		}
	}
}

// FuzzPattern: a pattern that is accepted generates texts that it matches.
func FuzzPattern(f *testing.F) {
	for _, pattern := range patterns {
		f.Add(pattern, uint64(1))
	}
	f.Fuzz(func(t *testing.T, pattern string, seed uint64) {
		schema, err := json.Marshal(map[string]any{"type": "string", "pattern": pattern, "maxLength": 100})
		if err != nil || !utf8.ValidString(pattern) {
			return
		}
		if _, err := FromSchema(schema); err != nil {
			return
		}
		translated, err := translate(pattern)
		if err != nil {
			t.Fatal(err)
		}
		re, err := parsePattern(pattern)
		if err != nil {
			t.Fatal(err)
		}
		n, err := patternNode(re)
		if err != nil {
			t.Fatal(err)
		}
		var b strings.Builder
		draw(rand.New(rand.NewPCG(seed, 2)), &b, n) //nolint:gosec // a text for a test
		var text string
		if err := json.Unmarshal([]byte(`"`+b.String()+`"`), &text); err != nil || !regexp.MustCompile(translated).MatchString(text) {
			t.Errorf("%q generates %s: %v", pattern, b.String(), err)
		}
	})
}

// TestPatternsOfFormats: the patterns that Zod writes beside formats match the texts of the formats
// here; others are refused.
func TestPatternsOfFormats(t *testing.T) {
	const day = `(?:(?:\d\d[2468][048]|\d\d[13579][26]|\d\d0[48]|[02468][048]00|[13579][26]00)-02-29|\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|(?:02)-(?:0[1-9]|1\d|2[0-8])))`
	for _, c := range []struct {
		format, pattern string
		accepted        bool
	}{
		{"email", `^(?:[A-Za-z0-9_'+\-]+\.)*[A-Za-z0-9_'+\-]*[A-Za-z0-9_+-]@(?:[A-Za-z0-9][A-Za-z0-9\-]*\.)+[A-Za-z]{2,}$`, true},
		{"uuid", `^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$`, true},
		{"date", `^` + day + `$`, true},
		{"date-time", `^` + day + `T(?:(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:Z))$`, true},
		{"ipv4", `^(?:(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])\.){3}(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9][0-9]|[0-9])$`, true},
		{"ipv6", `^(([0-9a-fA-F]{1,4}:){7}[0-9a-fA-F]{1,4}|:((:[0-9a-fA-F]{1,4}){1,7}|:))$`, true},
		{"cuid", `^[cC][0-9a-z]{6,}$`, true},
		{"base64", `^$|^(?:[0-9a-zA-Z+/]{4})*(?:(?:[0-9a-zA-Z+/]{2}==)|(?:[0-9a-zA-Z+/]{3}=))?$`, true},
		{"uri", `^https?://`, true},
		{"uri", `^https://`, false},
		{"uuid", `^[0-9]`, false},
		{"date", `(?=2)`, false},
		{"ipv4", `^[0-9.]{7,14}$`, false},
	} {
		schema, err := json.Marshal(map[string]any{"type": "string", "format": c.format, "pattern": c.pattern})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := FromSchema(schema); c.accepted != (err == nil) || err != nil && !strings.Contains(err.Error(), "schema #/pattern: ") {
			t.Errorf("%s beside %s: %v", c.pattern, c.format, err)
		}
	}
}

// TestPatternLimits: the limits of a text's length beside a pattern.
func TestPatternLimits(t *testing.T) {
	for _, c := range []struct {
		pattern   string
		low, high int
		want      string // a part of the grammar, or of the error
	}{
		{`^[a-z]+$`, 0, 8, "{1,8}"},
		{`^[a-z]{2,}$`, 4, 9, "{4,9}"},
		{`^[a-z]{2,6}$`, 0, 9, "{2,6}"},
		{`^a[a-z]{1,3}$`, 2, 4, "{1,3}"},
		{`^a[a-z]*$`, 0, 8, "have the pattern itself bound"},
		{`^[a-z]{2,6}$`, 8, 9, "have the pattern itself bound"},
		{`^(?=a)b$`, 0, 9, "look-ahead"},
		{`(a)\1`, 0, 9, "invalid escape"},
		{`a\b`, 0, -1, "no counterpart"},
		{`^[[:alpha:]]$`, 0, 9, "ECMA-262"},
		{`(?i)a`, 0, 9, "flags"},
		{`^a^b$`, 0, 9, "^ and $ are supported at the ends"},
		{`^(a?b?)*$`, 0, -1, "may be empty"},
		{`^.{0,1000}.{0,1000}.{0,1000}$`, 0, -1, "more than 2000 characters"},
		{`^((((a{9}){9}){9}){9}){9}$`, 0, -1, "invalid repeat count"},
	} {
		schema := map[string]any{"type": "string", "pattern": c.pattern, "minLength": c.low}
		if c.high >= 0 {
			schema["maxLength"] = c.high
		}
		text, err := json.Marshal(schema)
		if err != nil {
			t.Fatal(err)
		}
		got, err := FromSchema(text)
		if !strings.Contains(got+fmt.Sprint(err), c.want) {
			t.Errorf("%s of %d to %d characters: %s, %v, want %s", c.pattern, c.low, c.high, got, err, c.want)
		}
	}
}
