package cli

import (
	"errors"
	"testing"
)

func TestMessage(t *testing.T) {
	for want, err := range map[string]error{
		"":                  nil,
		"no room":           errors.New("no  room"),
		"a: 1; b: 2":        errors.Join(errors.New("a: 1"), errors.New("b: 2")),
		"the log has: line": errors.New("the log has:\n\n  line"),
	} {
		if got := message(err); got != want {
			t.Errorf("the message is %q, want %q", got, want)
		}
	}
}
