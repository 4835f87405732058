// Package yamlerror describes mistakes in YAML files, with their positions.
package yamlerror

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

var (
	numbered = lazyregexp.New(`(?s)^line (\d+): (.*)`)
	// lineBefore are the beginnings of the errors whose lines are one less than those of the text: the
	// parser counts from 0, and a tab is reported at the beginning of the value before it.
	lineBefore = lazyregexp.New(`^(did not find expected (<|node content|'-'|key|','|scalar)|found a tab character that violates indentation)`)
)

// SecondDocument returns the line at which a second YAML document begins, 0 if there is none: a program
// that reads one document would ignore it.
func SecondDocument(text []byte) int {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var first, second yaml.Node
	if decoder.Decode(&first) != nil {
		return 0
	}
	switch err := decoder.Decode(&second); {
	case err == nil:
		return second.Line
	case errors.Is(err, io.EOF):
		return 0
	default:
		line, _ := Split(err, string(text))
		return line
	}
}

// Split returns the line of a syntax error of the YAML package in the source, from 1, and its text
// without that. An error behind the end is one of the last line with content.
func Split(err error, source string) (line int, text string) {
	text = strings.TrimPrefix(err.Error(), "yaml: ")
	m := numbered.FindStringSubmatch(text)
	if m == nil {
		return 1, text
	}
	line, _ = strconv.Atoi(m[1]) // digits
	if text = m[2]; lineBefore.MatchString(text) {
		line++
	}
	last := 1 + strings.Count(strings.TrimRight(source, " \t\r\n"), "\n")
	return min(max(line, 1), last), text
}
