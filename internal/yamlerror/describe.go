package yamlerror

import (
	"errors"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// A Type describes a type of the program to the authors of files.
type Type struct {
	// Want names the values of the type: "a whole number".
	Want string
	// Of is added to "there is no such setting" for an unknown member of the type: " of queue".
	Of string
}

var (
	located      = lazyregexp.New(`line (\d+): (.*)`)
	wrongType    = lazyregexp.New("cannot unmarshal !!(?:\\w+ `(.*)`|(?:seq|map)) into (\\S+)")
	unknownField = lazyregexp.New(` not found in type (\S+)`)
)

// Describe formats an error of the YAML package's decoder as FILE:LINE: reason, one line for each
// mistake. It describes the types in the table by their names in Go.
func Describe(file string, err error, types map[string]Type) string {
	texts := []string{err.Error()}
	if many, ok := errors.AsType[*yaml.TypeError](err); ok {
		texts = many.Errors
	}
	for i, text := range texts {
		if m := located.FindStringSubmatch(text); m != nil {
			text = file + ":" + m[1] + ": " + m[2]
		} else {
			text = file + ": " + text
		}
		texts[i] = describe(text, types)
	}
	return strings.Join(texts, "\n")
}

// describe replaces the names of types in an error.
func describe(text string, types map[string]Type) string {
	if m := unknownField.FindStringSubmatch(text); len(m) > 1 {
		return strings.Replace(text, m[0], ": there is no such setting"+types[m[1]].Of, 1)
	}
	m := wrongType.FindStringSubmatch(text)
	if len(m) < 3 || types[m[2]].Want == "" {
		return text
	}
	want := "want " + types[m[2]].Want
	if m[1] != "" {
		want = m[1] + ": " + want
	}
	return strings.Replace(text, m[0], want, 1)
}
