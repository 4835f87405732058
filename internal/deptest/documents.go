package deptest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Width is the greatest number of columns of a document's line. Tables, listings and lines without
// a blank at which to wrap may be longer.
const Width = 100

// sourcePath matches a path in the sources as documents write it.
var sourcePath = regexp.MustCompile("`((?:internal|fabric|cmd|bench|test|guest|client|examples|packaging|scripts)/[A-Za-z0-9_./-]+)`")

// CheckDocument returns one line for every line of the document, a file below root, that is too
// long, and for every path in the sources that it names and that does not exist.
func CheckDocument(root, document string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		return nil, fmt.Errorf("read document: %w", err)
	}
	var wrong []string
	listing := false
	for i, line := range strings.Split(string(text), "\n") {
		at := fmt.Sprintf("%s:%d", document, i+1)
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			listing = !listing
		}
		if n := utf8.RuneCountInString(line); n > Width && !listing && canWrap(line) {
			wrong = append(wrong, fmt.Sprintf("%s: %d columns, at most %d", at, n, Width))
		}
		for _, m := range sourcePath.FindAllStringSubmatch(line, -1) {
			if !exists(filepath.Join(root, m[1])) {
				wrong = append(wrong, fmt.Sprintf("%s: there is no %s", at, m[1]))
			}
		}
	}
	return wrong, nil
}

// canWrap reports whether a line is prose with a blank at which to wrap: no row of a table, no
// indented listing.
func canWrap(line string) bool {
	text := strings.TrimLeft(line, " -*")
	return !strings.HasPrefix(text, "|") && !strings.HasPrefix(line, "    ") && strings.Contains(text, " ")
}

// exists reports whether path is a file or a folder.
func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
