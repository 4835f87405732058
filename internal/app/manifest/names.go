package manifest

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// maxName bounds the bytes of a name, which becomes a part of subjects, of
// files' names and of metrics.
const maxName = 63

// nameError returns why s is no name, "" if it is a name.
func nameError(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > maxName:
		return fmt.Sprintf("has %d letters, at most %d are allowed", len(s), maxName)
	case !isLetter(s[0]):
		return "must begin with a letter"
	}
	for _, c := range []byte(s) {
		if !isLetter(c) && !isDigit(c) && c != '-' && c != '_' {
			return "may have letters, digits, - and _ only"
		}
	}
	return ""
}

// labelError is nameError for the names of apps and tenants, which are also folders and parts of
// addresses.
func labelError(s string) string {
	if why := CheckLabel(s); why != "" {
		return why
	}
	if s == "v1" || s == "v2" || s == "api" {
		return "begins the paths of the interfaces of models"
	}
	return ""
}

// CheckLabel returns why s can't be the name of an app or a tenant, "" if it can. A name that is
// reserved in new manifests can: earlier versions accepted some of these.
func CheckLabel(s string) string {
	if why := nameError(s); why != "" {
		return why
	}
	if s != strings.ToLower(s) || strings.Contains(s, "_") {
		return "may have lower-case letters, digits and - only"
	}
	if strings.HasSuffix(s, "-") {
		return "must not end with -"
	}
	return ""
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func isDigit(c byte) bool  { return c >= '0' && c <= '9' }

// suggestName returns a valid name similar to s, for the message that s is none.
func suggestName(s string, label bool) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		switch {
		case isLetter(c), isDigit(c) && b.Len() > 0, c == '_' && b.Len() > 0 && !label:
			b.WriteByte(c)
		case b.Len() > 0 && !strings.HasSuffix(b.String(), "-"):
			b.WriteByte('-')
		}
	}
	out := b.String()
	if label {
		out = strings.ToLower(out)
	}
	return strings.Trim(out[:min(len(out), maxName)], "-")
}

func sorted[T any](m map[string]T) []string { return slices.Sorted(maps.Keys(m)) }
