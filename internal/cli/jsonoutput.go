package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// newJSONEncoder returns an encoder to w. Of the characters that clean replaces, encoding/json
// escapes only those below U+0020 and separators of lines; a name may have others too.
func newJSONEncoder(w io.Writer) *json.Encoder { return json.NewEncoder(jsonWriter{w}) }

// jsonWriter writes JSON, with the characters escaped that a terminal obeys. They occur in strings
// alone, so programs read the same values. Each Write has whole characters.
type jsonWriter struct{ w io.Writer }

// Write implements io.Writer.
func (j jsonWriter) Write(p []byte) (int, error) {
	if _, err := io.WriteString(j.w, escapeJSON(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

func escapeJSON(text string) string {
	escaped := func(r rune) bool { return r != '\n' && unprintable(r) || r == utf8.RuneError }
	if !strings.ContainsFunc(text, escaped) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if escaped(r) { // all of them are in the Basic Multilingual Plane
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}
