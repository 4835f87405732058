package spell_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboard-run/outboard/internal/spell"
)

func TestHint(t *testing.T) {
	t.Parallel()
	many := make([]string, 30)
	for i := range many {
		many[i] = fmt.Sprintf("word-%02d", i)
	}
	for name, test := range map[string]struct {
		got   string
		words []string
		want  string
	}{
		"a slip":     {"memroy", []string{"memory", "deadline"}, `did you mean "memory"? There are: deadline, memory`},
		"a capital":  {"Memory", []string{"memory"}, `did you mean "memory"? There are: memory`},
		"another":    {"colour", []string{"memory", "deadline"}, "there are: deadline, memory"},
		"no words":   {"colour", nil, "there are none"},
		"very long":  {strings.Repeat("x", 65), []string{strings.Repeat("x", 64)}, "there are: " + strings.Repeat("x", 64)},
		"many words": {"colour", many, "there are: " + strings.Join(many[:24], ", ") + ", ..."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if got := spell.Hint(test.got, test.words); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
