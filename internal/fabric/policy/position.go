package policy

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/yamlerror"
)

// An Error is a mistake in a file, with its position.
type Error = yamlerror.Error

// A source is a file's text, split into lines.
type source struct {
	file  string
	lines []string
}

func newSource(file string, text []byte) *source {
	// These are all line breaks of YAML.
	ends := strings.NewReplacer("\r\n", "\n", "\r", "\n", "\u0085", "\n", "\u2028", "\n", "\u2029", "\n")
	return &source{file, strings.Split(ends.Replace(string(text)), "\n")}
}

func (s *source) errorf(n *yaml.Node, format string, arguments ...any) error {
	return &Error{File: s.file, Line: n.Line, Column: n.Column, Text: fmt.Sprintf(format, arguments...)}
}

// inside returns the position in the file of the character at offset of a scalar's value. It walks
// through the value and the file's text together: quotes, indentation and folded lines are in the
// text only.
func (s *source) inside(n *yaml.Node, offset int) (line, column int) {
	c := cursor{s.lines, n.Line - 1, n.Column - 1}
	c.open(n.Style)
	for i, r := range []rune(n.Value) {
		c.seek(r, n.Style)
		if i == offset {
			break
		}
		c.pass(r, n.Style)
	}
	return c.line + 1, c.column + 1
}

// A cursor is a position in a text. Columns count characters, from 0.
type cursor struct {
	lines        []string
	line, column int
}

// rest returns the rest of the line.
func (c *cursor) rest() string {
	if c.line >= len(c.lines) {
		return ""
	}
	text := c.lines[c.line]
	for range c.column {
		_, size := utf8.DecodeRuneInString(text)
		text = text[size:]
	}
	return text
}

// open moves from the start of a node to the start of its value.
func (c *cursor) open(style yaml.Style) {
	switch {
	case style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0:
		c.line, c.column = c.line+1, 0
	case style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0:
		c.column++
	}
}

// seek moves to r, past white space that is not in the value. A space of the value may be a line
// break in the text, so it is left to the next character's seek.
func (c *cursor) seek(r rune, style yaml.Style) {
	if r == ' ' || r == '\n' || r == '\t' {
		return
	}
	for c.line < len(c.lines) {
		rest := c.rest()
		trimmed := strings.TrimLeft(rest, " \t")
		c.column += len(rest) - len(trimmed)
		continued := style&yaml.DoubleQuotedStyle != 0 && trimmed == "\\"
		if trimmed != "" && !continued {
			return
		}
		c.line, c.column = c.line+1, 0
	}
}

// pass moves past r as the text spells it.
func (c *cursor) pass(r rune, style yaml.Style) {
	rest := c.rest()
	switch {
	case rest == "":
		return
	case style&yaml.SingleQuotedStyle != 0 && strings.HasPrefix(rest, "''"):
		c.column += 2
	case style&yaml.DoubleQuotedStyle != 0 && rest[0] == '\\':
		c.column += escaped(rest)
	default:
		if first, _ := utf8.DecodeRuneInString(rest); first == r {
			c.column++
		}
	}
}

// escaped returns the length of the escape sequence that text begins with.
func escaped(text string) int {
	if len(text) < 2 {
		return len(text)
	}
	length := map[byte]int{'x': 4, 'u': 6, 'U': 10}[text[1]]
	return min(max(length, 2), len(text))
}
