package dsl

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	regex "regexp/syntax"
	"strings"
	"unicode/utf8"

	"github.com/itchyny/gojq"
)

// Limits of a regular expression. Repetitions make its program many times as large as its text, and
// each of the program's instructions may be tried at each character.
const (
	maxPattern = 8 << 10
	maxProgram = 10_000
	maxGroups  = 100
	// maxMatches bounds the matches of one search, with their groups.
	maxMatches = 1 << 17
	// instructionBytes is the charge for each instruction of a program that is made. One that is tried
	// at a character is charged as a byte, or more if the program has groups.
	instructionBytes = 256
	// maxSearches bounds the regular expressions that a budget holds.
	maxSearches = 64
)

var (
	errPattern = errors.New("the regular expression is too large: leave such work to a function")
	errMatches = fmt.Errorf("the regular expression matches too often: %w", errBytes)
)

// search is a compiled regular expression.
type search struct {
	text  string
	first *regexp.Regexp // finds the first match
	rest  *regexp.Regexp // finds the next match, from the character before its input's end; nil until it is used
	cost  int64          // of each character that it reads
}

// search compiles a regular expression with jq's flags.
func (b *Budget) search(pattern, flags string) (*search, error) {
	key := [2]string{pattern, flags}
	if s := b.searches[key]; s != nil {
		return s, nil
	}
	if strings.Trim(flags, "gim") != "" {
		return nil, fmt.Errorf("unsupported regular expression flag: %q", flags)
	}
	if len(pattern) > maxPattern {
		return nil, errPattern
	}
	text := pattern
	for _, f := range []struct{ flag, syntax string }{{"i", "(?i)"}, {"m", "(?s)"}} {
		if strings.Contains(flags, f.flag) {
			text = f.syntax + text
		}
	}
	tree, err := regex.Parse(text, regex.Perl)
	if err != nil {
		return nil, fmt.Errorf("invalid regular expression %q: %w", text, err)
	}
	size, groups := programSize(tree), tree.MaxCap()
	if size > maxProgram || groups > maxGroups {
		return nil, errPattern
	}
	if err := b.charge(int64(instructionBytes * size)); err != nil {
		return nil, err
	}
	s := &search{text: text, cost: 1 + int64(size)*int64(8+groups)/8}
	if s.first, err = regexp.Compile(text); err != nil {
		return nil, fmt.Errorf("invalid regular expression %q: %w", text, err)
	}
	if len(b.searches) >= maxSearches || b.searches == nil {
		b.searches = map[[2]string]*search{}
	}
	b.searches[key] = s
	return s, nil
}

// programSize returns about the number of instructions of a regular expression.
func programSize(re *regex.Regexp) int {
	size := 1 + len(re.Rune)/2
	if re.Op == regex.OpLiteral {
		size = len(re.Rune)
	}
	for _, sub := range re.Sub {
		size += programSize(sub)
	}
	if re.Op == regex.OpRepeat {
		size *= max(re.Max, re.Min+1)
	}
	return size
}

// chargedReader reads the characters of a text, and charges for each. A regular expression takes its
// error for the end of the text, so that a search ends when the budget is used up.
type chargedReader struct {
	text   string
	cost   int64
	budget *Budget
	err    error
}

// ReadRune implements io.RuneReader.
func (r *chargedReader) ReadRune() (rune, int, error) {
	if r.text == "" {
		return 0, 0, io.EOF
	}
	if r.err = r.budget.charge(r.cost); r.err != nil {
		return 0, 0, r.err
	}
	c, size := utf8.DecodeRuneInString(r.text)
	r.text = r.text[size:]
	return c, size, nil
}

// test reports whether the regular expression matches a part of a text.
func (s *search) test(b *Budget, text string) (bool, error) {
	r := &chargedReader{text: text, cost: s.cost, budget: b}
	found := s.first.MatchReader(r)
	return found, r.err
}

// find returns the next match from an offset in bytes on, as the package regexp does, nil if there is
// none.
func (s *search) find(b *Budget, text string, from int) ([]int, error) {
	re, before, group := s.first, 0, 0
	if from > 0 {
		// What precedes the match may decide on it, so that the search begins one character before.
		_, size := utf8.DecodeLastRuneInString(text[:from])
		before, group = from-size, 1
		if s.rest == nil {
			var err error
			if s.rest, err = regexp.Compile(`\A(?s:.+?)(` + s.text + `)`); err != nil {
				return nil, err
			}
		}
		re = s.rest
	}
	r := &chargedReader{text: text[before:], cost: s.cost, budget: b}
	match := re.FindReaderSubmatchIndex(r)
	if r.err != nil || match == nil {
		return nil, r.err
	}
	match = match[2*group:]
	for i := range match {
		if match[i] >= 0 {
			match[i] += before
		}
	}
	return match, nil
}

// findAll returns the matches in a text, one or all that do not overlap, as the package regexp does.
func (s *search) findAll(b *Budget, text string, all bool) ([][]int, error) {
	var found [][]int
	for from, last := 0, -1; from <= len(text); {
		match, err := s.find(b, text, from)
		if err != nil || match == nil {
			return found, err
		}
		if match[0] != match[1] || match[0] != last {
			found = append(found, match)
		}
		if !all {
			break
		}
		if len(found)*len(match) > 2*maxMatches {
			return nil, errMatches
		}
		last = match[1]
		if match[1] > from {
			from = match[1]
			continue
		}
		_, size := utf8.DecodeRuneInString(text[from:])
		from += max(size, 1)
	}
	return found, nil
}

// searched returns the text, the regular expression and the flags of a search, or an error.
func searched(budget any, name string, v, pattern, flags any) (b *Budget, s *search, text string, all bool, err error) {
	b, ok := budget.(*Budget)
	if !ok {
		return nil, nil, "", false, errSpoil
	}
	set, isText := flags.(string)
	text, ok = v.(string)
	re, isPattern := pattern.(string)
	if !ok || !isPattern || !isText && flags != nil {
		return nil, nil, "", false, fmt.Errorf("%s(%s; %s) cannot be applied to: %s (%s)",
			name, gojq.Preview(pattern), gojq.Preview(flags), gojq.TypeOf(v), gojq.Preview(v))
	}
	s, err = b.search(re, set)
	return b, s, text, strings.Contains(set, "g"), err
}

// matches implements jq's match and test.
func matches(budget, v, pattern, flags any, testing bool) any {
	name := "match"
	if testing {
		name = "test"
	}
	b, s, text, all, err := searched(budget, name, v, pattern, flags)
	if err != nil {
		return err
	}
	if testing {
		found, err := s.test(b, text)
		if err != nil {
			return err
		}
		return found
	}
	found, err := s.findAll(b, text, all)
	if err != nil {
		return err
	}
	out := make([]any, len(found))
	at := position{text: text}
	for i, match := range found {
		out[i] = s.describe(text, match, at.characters(match[0]))
	}
	return out
}

// position counts the characters before increasing offsets of a text.
type position struct {
	text         string
	bytes, count int
}

func (p *position) characters(offset int) int {
	p.count += utf8.RuneCountInString(p.text[p.bytes:offset])
	p.bytes = offset
	return p.count
}

// describe returns a match as jq does. before is the number of characters before it.
func (s *search) describe(text string, match []int, before int) map[string]any {
	captures := make([]any, len(match)/2-1)
	for i, name := range s.first.SubexpNames()[1:] {
		begin, end := match[2*i+2], match[2*i+3]
		capture := map[string]any{"name": nil, "offset": -1, "length": 0, "string": nil}
		if name != "" {
			capture["name"] = name
		}
		if begin >= 0 {
			capture["offset"] = before + utf8.RuneCountInString(text[match[0]:begin])
			capture["length"], capture["string"] = utf8.RuneCountInString(text[begin:end]), text[begin:end]
		}
		captures[i] = capture
	}
	whole := text[match[0]:match[1]]
	return map[string]any{"offset": before, "length": utf8.RuneCountInString(whole), "string": whole, "captures": captures}
}

// cuts returns an array of the matches, each with the text between it and the one before, and of the
// text after the last.
func cuts(budget, v, pattern, flags any) any {
	b, s, text, all, err := searched(budget, "match", v, pattern, flags)
	if err != nil {
		return err
	}
	found, err := s.findAll(b, text, all)
	if err != nil {
		return err
	}
	out, from := make([]any, len(found)), 0
	for i, match := range found {
		out[i] = map[string]any{"before": text[from:match[0]], "captures": s.describe(text, match, 0)["captures"]}
		from = match[1]
	}
	return []any{out, text[from:]}
}

// MatchWhole reports whether a regular expression matches all of a text. One that is invalid, or
// takes more than the budget, matches nothing.
func MatchWhole(b *Budget, pattern, text string) bool {
	s, err := b.search("^(?:"+pattern+")$", "")
	if err != nil {
		return false
	}
	found, err := s.test(b, text)
	return err == nil && found
}
