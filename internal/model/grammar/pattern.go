package grammar

import (
	"regexp/syntax"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a pattern.
const (
	maxPattern = 4 << 10 // bytes
	// maxPositions bounds the characters of a pattern, repetitions counted: a grammar is unrolled.
	maxPositions = 2000
)

// compilePattern compiles a regular expression that a text has to match, within the quotes of the text. The
// subset is what ECMA-262 and Go's package regexp have in common, with anchors at the ends only. A text
// may have any characters before and behind a match, unless an anchor excludes them.
func compilePattern(c *compiler, o *object, path string, low, high int) (node, error) {
	text, ok := o.values["pattern"].(string)
	at := step(path, "pattern")
	if !ok || len(text) > maxPattern {
		return nil, refuse(at, "it must be a regular expression of at most %d bytes", maxPattern)
	}
	re, err := parsePattern(text)
	if err != nil {
		return nil, refuse(at, "%q is not supported: %w", text, err)
	}
	n := positions(re)
	if n > maxPositions {
		return nil, refuse(at, "%q has more than %d characters with its repetitions", text, maxPositions)
	}
	if err := c.charge(64*n, path); err != nil {
		return nil, err
	}
	if narrowed := narrow(re, low, high); narrowed != nil {
		re = narrowed
	} else if shortest, longest := textLengths(re); low > shortest || high >= 0 && (longest < 0 || longest > high) {
		return nil, refuse(at, "texts of %q may be shorter than minLength or longer than maxLength: have the pattern itself bound their length, as in ^[a-z]{1,8}$", text)
	}
	expression, err := patternNode(re)
	if err != nil {
		return nil, refuse(at, "%q is not supported: %w", text, err)
	}
	return expression, nil
}

// anyCharacters may stand before and behind a match.
//
//nolint:gochecknoglobals // a constant
var anyCharacters = &syntax.Regexp{Op: syntax.OpStar, Sub: []*syntax.Regexp{{Op: syntax.OpAnyChar}}}

// parsePattern parses a regular expression and returns the expression of whole texts.
func parsePattern(text string) (*syntax.Regexp, error) {
	text, err := translate(text)
	if err != nil {
		return nil, err
	}
	re, err := syntax.Parse(text, syntax.ClassNL|syntax.OneLine|syntax.PerlX|syntax.UnicodeGroups|syntax.NonGreedy)
	if err != nil {
		return nil, patternError(strings.TrimPrefix(err.Error(), "error parsing regexp: "))
	}
	return wholeText(re, true, true)
}

// A patternError is why a pattern is not supported.
type patternError string

func (e patternError) Error() string { return string(e) }

const errAnchor patternError = "^ and $ are supported at the ends of a pattern, or of its alternatives"

// translate returns a pattern in Go's syntax: \uXXXX has another form there. What has another meaning
// in ECMA-262 is refused.
func translate(text string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		switch rest := text[i:]; {
		case strings.HasPrefix(rest, "[:"), strings.HasPrefix(rest, "(?P"):
			return "", patternError("it is no syntax of ECMA-262: " + rest[:2])
		case strings.HasPrefix(rest, "(?") && !strings.HasPrefix(rest, "(?:") && !strings.HasPrefix(rest, "(?<"):
			return "", patternError("look-ahead and flags, " + rest[:min(3, len(rest))] + ", are not supported")
		case strings.HasPrefix(rest, "(?<=") || strings.HasPrefix(rest, "(?<!"):
			return "", patternError("look-behind is not supported")
		case rest[0] != '\\' || len(rest) == 1:
			b.WriteByte(rest[0])
		case rest[1] == 'u' && len(rest) >= 6 && isHex(rest[2:6]):
			b.WriteString(`\x{` + rest[2:6] + "}")
			i += 5
		case strings.IndexByte("AazZQECx", rest[1]) >= 0 && (rest[1] != 'x' || len(rest) < 4 || !isHex(rest[2:4])):
			return "", patternError("it is no syntax of ECMA-262: " + rest[:2])
		default:
			b.WriteString(rest[:2])
			i++
		}
	}
	return b.String(), nil
}

func isHex(s string) bool { return strings.Trim(s, "0123456789abcdefABCDEF") == "" }

// wholeText returns the expression, without anchors, of the texts that match re at a place where a text
// may begin, may end, or both: there any characters may stand unless an anchor excludes them.
func wholeText(re *syntax.Regexp, begins, ends bool) (*syntax.Regexp, error) {
	switch re.Op {
	case syntax.OpCapture:
		return wholeText(re.Sub[0], begins, ends)
	case syntax.OpAlternate:
		whole := &syntax.Regexp{Op: syntax.OpAlternate}
		for _, sub := range re.Sub {
			s, err := wholeText(sub, begins, ends)
			if err != nil {
				return nil, err
			}
			whole.Sub = append(whole.Sub, s)
		}
		return whole, nil
	case syntax.OpConcat:
		return wholeConcat(re.Sub, begins, ends)
	default:
		return wholePart(re, begins, ends)
	}
}

func wholeConcat(parts []*syntax.Regexp, begins, ends bool) (*syntax.Regexp, error) {
	if begins && len(parts) > 0 && parts[0].Op == syntax.OpBeginText {
		parts, begins = parts[1:], false
	}
	if last := len(parts) - 1; ends && last >= 0 && parts[last].Op == syntax.OpEndText {
		parts, ends = parts[:last], false
	}
	whole := &syntax.Regexp{Op: syntax.OpConcat}
	for i, part := range parts {
		sub, err := wholeText(part, begins && i == 0, ends && i == len(parts)-1)
		if err != nil {
			return nil, err
		}
		whole.Sub = append(whole.Sub, sub)
	}
	if len(parts) == 0 {
		return wholePart(&syntax.Regexp{Op: syntax.OpEmptyMatch}, begins, ends)
	}
	return whole, nil
}

func wholePart(re *syntax.Regexp, begins, ends bool) (*syntax.Regexp, error) {
	whole := &syntax.Regexp{Op: syntax.OpConcat, Sub: []*syntax.Regexp{re}}
	switch {
	case re.Op == syntax.OpBeginText && begins:
		begins, whole.Sub = false, nil
	case re.Op == syntax.OpEndText && ends:
		ends, whole.Sub = false, nil
	case hasAnchor(re):
		return nil, errAnchor
	}
	if begins {
		whole.Sub = slices.Insert(whole.Sub, 0, anyCharacters)
	}
	if ends {
		whole.Sub = append(whole.Sub, anyCharacters)
	}
	return whole, nil
}

func hasAnchor(re *syntax.Regexp) bool {
	switch re.Op {
	case syntax.OpBeginText, syntax.OpEndText, syntax.OpBeginLine, syntax.OpEndLine:
		return true
	default:
		return slices.ContainsFunc(re.Sub, hasAnchor)
	}
}

// unlimited is a length, or a number of positions, that has no limit.
const unlimited = -1

// repetition returns how often an operator repeats its operand, and false for other operators.
func repetition(re *syntax.Regexp) (low, high int, ok bool) {
	switch re.Op {
	case syntax.OpStar:
		return 0, unlimited, true
	case syntax.OpPlus:
		return 1, unlimited, true
	case syntax.OpQuest:
		return 0, 1, true
	case syntax.OpRepeat:
		return re.Min, re.Max, true
	default:
		return 0, 0, false
	}
}

// positions returns the number of characters of an expression, repetitions unrolled, at most a little
// more than maxPositions.
func positions(re *syntax.Regexp) int {
	n := max(1, len(re.Rune)/2)
	for _, sub := range re.Sub {
		if n += positions(sub); n > maxPositions {
			return n
		}
	}
	if low, high, ok := repetition(re); ok {
		n *= max(1, low, high)
	}
	return min(n, maxPositions+1)
}

// textLengths returns the lengths of the shortest and the longest text that an expression matches, in
// characters.
func textLengths(re *syntax.Regexp) (shortest, longest int) {
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune), len(re.Rune)
	case syntax.OpCharClass, syntax.OpAnyChar, syntax.OpAnyCharNotNL:
		return 1, 1
	case syntax.OpCapture, syntax.OpConcat:
		for _, sub := range re.Sub {
			low, high := textLengths(sub)
			shortest += low
			if longest += high; high < 0 || longest < high {
				longest = unlimited
			}
		}
		return shortest, longest
	case syntax.OpAlternate:
		shortest, longest = textLengths(re.Sub[0])
		for _, sub := range re.Sub[1:] {
			low, high := textLengths(sub)
			shortest = min(shortest, low)
			if longest = max(longest, high); high < 0 || longest < 0 {
				longest = unlimited
			}
		}
		return shortest, longest
	default:
		return repeatedLengths(re)
	}
}

func repeatedLengths(re *syntax.Regexp) (shortest, longest int) {
	least, most, ok := repetition(re)
	if !ok {
		return 0, 0
	}
	low, high := textLengths(re.Sub[0])
	if most < 0 && high != 0 || high < 0 && most != 0 {
		return low * least, unlimited
	}
	return low * least, high * max(most, 0)
}

// narrow returns an expression that repeats one set of characters with the limits of a text's length,
// nil for other expressions and without limits.
func narrow(re *syntax.Regexp, low, high int) *syntax.Regexp {
	for (re.Op == syntax.OpConcat || re.Op == syntax.OpCapture) && len(re.Sub) == 1 {
		re = re.Sub[0]
	}
	least, most, ok := repetition(re)
	if !ok || low == 0 && high < 0 {
		return nil
	}
	if shortest, longest := textLengths(re.Sub[0]); shortest != 1 || longest != 1 {
		return nil
	}
	if high >= 0 && (most < 0 || most > high) {
		most = high
	}
	if least = max(least, low); most >= 0 && most < least {
		return nil
	}
	return &syntax.Regexp{Op: syntax.OpRepeat, Min: least, Max: most, Sub: re.Sub}
}

// patternNode returns the expression of a grammar for the texts that a regular expression matches, as
// JSON writes them.
func patternNode(re *syntax.Regexp) (node, error) {
	switch re.Op {
	case syntax.OpEmptyMatch:
		return sequence{}, nil
	case syntax.OpLiteral:
		if re.Flags&syntax.FoldCase != 0 {
			return foldedNode(re.Rune)
		}
		return textNode(re.Rune)
	case syntax.OpCharClass:
		return classNode(re.Rune)
	case syntax.OpAnyChar:
		return classNode([]rune{0, utf8.MaxRune})
	case syntax.OpAnyCharNotNL: // ECMA-262, 22.2.2.7, LineTerminator; U+2028 and U+2029 are never written
		return classNode([]rune{0, '\n' - 1, '\n' + 1, '\r' - 1, '\r' + 1, utf8.MaxRune})
	case syntax.OpCapture:
		return patternNode(re.Sub[0])
	case syntax.OpConcat:
		nodes, err := patternNodes(re.Sub)
		return sequence(nodes), err
	case syntax.OpAlternate:
		nodes, err := patternNodes(re.Sub)
		return choice(nodes), err
	default:
		return repeatedNode(re)
	}
}

func repeatedNode(re *syntax.Regexp) (node, error) {
	low, high, ok := repetition(re)
	if !ok {
		return nil, patternError(re.String() + " has no counterpart in a grammar")
	}
	if high == 0 {
		return sequence{}, nil
	}
	if shortest, _ := textLengths(re.Sub[0]); shortest == 0 && high < 0 {
		return nil, patternError("it repeats " + re.Sub[0].String() + " without limit, which may be empty")
	}
	n, err := patternNode(re.Sub[0])
	return repeated{n, low, high}, err
}

func patternNodes(list []*syntax.Regexp) ([]node, error) {
	nodes := make([]node, len(list))
	for i, re := range list {
		var err error
		if nodes[i], err = patternNode(re); err != nil {
			return nil, err
		}
	}
	return nodes, nil
}

// escapes are the characters that JSON writes in two.
//
//nolint:gochecknoglobals // a table
var escapes = map[rune]string{'"': `\"`, '\\': `\\`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func textNode(text []rune) (node, error) {
	var b strings.Builder
	for _, r := range text {
		switch escape, ok := escapes[r]; {
		case ok:
			b.WriteString(escape)
		case r < ' ' || r == 0x7f || !utf8.ValidRune(r):
			return nil, patternError("it has control characters")
		default:
			b.WriteRune(r)
		}
	}
	return literal(b.String()), nil
}

// foldedNode returns the expression of letters in both cases: the parser returns [xX] as such a letter.
func foldedNode(text []rune) (node, error) {
	var all sequence
	for _, r := range text {
		other := unicode.SimpleFold(r)
		n, err := classNode([]rune{r, r, other, other})
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// written are the ranges of the characters that a pattern's classes may generate as they are. Left out
// are those that JSON escapes, and the spaces that \s of ECMA-262 has, and Go's has not.
//
//nolint:gochecknoglobals // a table
var written = []rune{
	' ', '!', '#', '[', ']', '~', 0xa1, 0x167f, 0x1681, 0x1fff, 0x200b, 0x2027, 0x202a, 0x202e, 0x2030, 0x205e, 0x2060, 0x2fff,
	0x3001, 0xd7ff, 0xe000, 0xfefe, 0xff00, utf8.MaxRune,
}

// classNode returns the expression of one of the characters in ranges.
func classNode(ranges []rune) (node, error) {
	var b strings.Builder
	var options choice
	for i := 0; i < len(ranges); i += 2 {
		low, high := ranges[i], ranges[i+1]
		for k := 0; k < len(written); k += 2 {
			if first, last := max(low, written[k]), min(high, written[k+1]); first <= last {
				writeRange(&b, first, last)
			}
		}
		for _, r := range []rune{'\b', '\t', '\n', '\f', '\r', '"', '\\'} {
			if low <= r && r <= high {
				options = append(options, literal(escapes[r]))
			}
		}
	}
	if b.Len() > 0 {
		options = append(choice{charset("[" + b.String() + "]")}, options...)
	}
	if len(options) == 0 {
		return nil, patternError("a class has no character that can be written")
	}
	return options, nil
}

// writeRange appends a range of a class in GBNF.
func writeRange(b *strings.Builder, first, last rune) {
	writeClassRune(b, first)
	if first < last {
		b.WriteByte('-')
		writeClassRune(b, last)
	}
}

func writeClassRune(b *strings.Builder, r rune) {
	const hex = "0123456789ABCDEF"
	if r < 0x80 && !strings.ContainsRune("0123456789", r) && (r|0x20 < 'a' || r|0x20 > 'z') {
		b.WriteString(`\x` + string(hex[r>>4]) + string(hex[r&15]))
		return
	}
	b.WriteRune(r)
}
