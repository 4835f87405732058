package dsl

import (
	"fmt"

	"github.com/itchyny/gojq"
)

// missingError says that the data has no member for a variable of a URI.
type missingError struct{ name string }

func (e *missingError) Error() string {
	return fmt.Sprintf("the URI needs %q, and the task's input has no such member", e.name)
}

// uriText returns the text of a variable's value, which must be a scalar.
func uriText(name string, v any) (string, error) {
	switch v := v.(type) {
	case string:
		if v == "." || v == ".." {
			return "", fmt.Errorf("the URI needs %q, and %q would name another path", name, v)
		}
		return v, nil
	case []any, map[string]any, nil:
		return "", fmt.Errorf("the URI needs %q as a text or a number, and it is %s", name, gojq.TypeOf(v))
	}
	text, err := gojq.Marshal(v)
	return string(text), err
}
