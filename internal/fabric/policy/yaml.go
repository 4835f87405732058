package policy

import (
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
	"google.golang.org/grpc/codes"

	"github.com/outboard-run/outboard/internal/spell"
	"github.com/outboard-run/outboard/internal/yamlerror"
)

// reader reads the values of YAML nodes, with errors at their positions.
type reader struct{ src *source }

// members are the permitted members of a mapping, with their parsers.
type members map[string]func(*yaml.Node) error

// capture stores a member for later.
func capture(at **yaml.Node) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		*at = n
		return nil
	}
}

func join[T any](m map[string]T) string {
	return strings.Join(slices.Sorted(maps.Keys(m)), ", ")
}

// syntax converts an error of the YAML parser, with its line.
func (y *reader) syntax(err error) error {
	line, text := yamlerror.Split(err, strings.Join(y.src.lines, "\n"))
	return &Error{File: y.src.file, Line: line, Column: 1, Text: "this is no YAML: " + text}
}

// mapping parses a mapping by the parsers of its members.
func (y *reader) mapping(n *yaml.Node, subject string, m members) error {
	if n.Kind != yaml.MappingNode {
		return y.src.errorf(n, "%s is a mapping with: %s", subject, join(m))
	}
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		f := m[key.Value]
		switch {
		case f == nil:
			return y.src.errorf(key, "%s has no %q: %s", subject, key.Value, spell.Hint(key.Value, slices.Collect(maps.Keys(m))))
		case seen[key.Value] != 0:
			return y.src.errorf(key, "%s is here twice: at line %d already", key.Value, seen[key.Value])
		case value.Kind == yaml.AliasNode:
			return y.src.errorf(value, "aliases are not understood: write it out")
		}
		seen[key.Value] = key.Line
		if err := f(value); err != nil {
			return err
		}
	}
	return nil
}

func (y *reader) require(n *yaml.Node, there bool, subject, example string) error {
	if there {
		return nil
	}
	return y.src.errorf(n, "%s is missing, as in: %s", subject, example)
}

func (y *reader) scalar(n *yaml.Node, want string) error {
	if n.Kind != yaml.ScalarNode {
		return y.src.errorf(n, "this has to be %s", want)
	}
	return nil
}

func (y *reader) text(n *yaml.Node, s *string) error {
	if err := y.scalar(n, "a text"); err != nil {
		return err
	}
	if n.Value == "" {
		return y.src.errorf(n, "this is empty")
	}
	*s = n.Value
	return nil
}

func (y *reader) keyword(n *yaml.Node, words map[string]bool, b *bool) error {
	v, ok := words[n.Value]
	if !ok || n.Kind != yaml.ScalarNode {
		return y.src.errorf(n, "%q is none of: %s", n.Value, join(words))
	}
	*b = v
	return nil
}

func (y *reader) integer(i *int, least, most int) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.Atoi(n.Value)
		if err != nil || n.Kind != yaml.ScalarNode || v < least || v > most {
			return y.src.errorf(n, "%q is no number between %d and %d", n.Value, least, most)
		}
		*i = v
		return nil
	}
}

// fraction parses a number from 0 to 1, or a percentage.
func (y *reader) fraction(f *float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		text, percent := strings.CutSuffix(n.Value, "%")
		v, err := strconv.ParseFloat(text, 64)
		if percent {
			v /= 100
		}
		if err != nil || n.Kind != yaml.ScalarNode || !(v >= 0 && v <= 1) {
			return y.src.errorf(n, "%q is no fraction: write 0.25 or 25%%", n.Value)
		}
		*f = v
		return nil
	}
}

// number parses a decimal number within bounds.
func (y *reader) number(f *float64, least, most float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := strconv.ParseFloat(n.Value, 64)
		if err != nil || n.Kind != yaml.ScalarNode || !(v >= least && v <= most) {
			return y.src.errorf(n, "%q is no number between %v and %v", n.Value, least, most)
		}
		*f = v
		return nil
	}
}

const maxDuration = 24 * time.Hour

func (y *reader) duration(d *time.Duration) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, err := time.ParseDuration(n.Value)
		if err != nil || n.Kind != yaml.ScalarNode || v < 0 || v > maxDuration {
			return y.src.errorf(n, "%q is no time: write 250ms or 1.5s; a day at most", n.Value)
		}
		*d = v
		return nil
	}
}

// code parses the name of a status code in capitals, such as UNAVAILABLE.
func (y *reader) code(c *codes.Code) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		v, ok := codeNames()[n.Value]
		if !ok || n.Kind != yaml.ScalarNode {
			return y.src.errorf(n, "%q is no status code: %s", n.Value, spell.Hint(n.Value, slices.Collect(maps.Keys(codeNames()))))
		}
		*c = v
		return nil
	}
}

func codeNames() map[string]codes.Code {
	return map[string]codes.Code{
		"CANCELLED": codes.Canceled, "UNKNOWN": codes.Unknown, "INVALID_ARGUMENT": codes.InvalidArgument,
		"DEADLINE_EXCEEDED": codes.DeadlineExceeded, "NOT_FOUND": codes.NotFound, "ALREADY_EXISTS": codes.AlreadyExists,
		"PERMISSION_DENIED": codes.PermissionDenied, "RESOURCE_EXHAUSTED": codes.ResourceExhausted,
		"FAILED_PRECONDITION": codes.FailedPrecondition, "ABORTED": codes.Aborted, "OUT_OF_RANGE": codes.OutOfRange,
		"UNIMPLEMENTED": codes.Unimplemented, "INTERNAL": codes.Internal, "UNAVAILABLE": codes.Unavailable,
		"DATA_LOSS": codes.DataLoss, "UNAUTHENTICATED": codes.Unauthenticated,
	}
}

// list applies f to each item. A single scalar is a list of one.
func (y *reader) list(f func(*yaml.Node) error) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind != yaml.SequenceNode {
			return f(n)
		}
		for _, item := range n.Content {
			if item.Kind == yaml.AliasNode {
				return y.src.errorf(item, "aliases are not understood: write it out")
			}
			if err := f(item); err != nil {
				return err
			}
		}
		return nil
	}
}

// nonEmpty is list, and refuses a list without items: without the member, all calls or the default
// codes would be meant.
func (y *reader) nonEmpty(f func(*yaml.Node) error) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		if n.Kind == yaml.SequenceNode && len(n.Content) == 0 {
			return y.src.errorf(n, "this list is empty, which restricts nothing: leave it out, or name what is meant")
		}
		return y.list(f)(n)
	}
}

func (y *reader) codes(list *[]codes.Code) func(*yaml.Node) error {
	fresh := true
	return y.nonEmpty(func(n *yaml.Node) error {
		if fresh {
			fresh, *list = false, nil
		}
		var c codes.Code
		if err := y.code(&c)(n); err != nil {
			return err
		}
		*list = append(*list, c)
		return nil
	})
}

func (y *reader) globs(g *globs) func(*yaml.Node) error {
	return y.nonEmpty(func(n *yaml.Node) error {
		var s string
		if err := y.text(n, &s); err != nil {
			return err
		}
		if strings.Count(s, "*") > 8 {
			return y.src.errorf(n, "a pattern has 8 stars at most")
		}
		*g = append(*g, newGlob(s))
		return nil
	})
}

// perHour parses a rate such as 100/s, 30/m or 5/h into units per hour.
func (y *reader) perHour(hour *uint64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		count, unit, cut := strings.Cut(n.Value, "/")
		times := map[string]float64{"s": 3600, "m": 60, "h": 1}[unit]
		v, err := strconv.ParseFloat(count, 64)
		if err != nil || !cut || times == 0 || !(v*times >= 1 && v*times <= 1e7*3600) {
			return y.src.errorf(n, "%q is no rate: write 100/s, 30/m or 5/h; from 1/h to 10000000/s", n.Value)
		}
		*hour = uint64(math.Round(v * times * unitsPerToken))
		return nil
	}
}

// bandwidth parses bits per second (10Mbit, 1.5Gbit, 64kbit) into bytes per second.
func (y *reader) bandwidth(bytes *float64) func(*yaml.Node) error {
	return func(n *yaml.Node) error {
		m := regexp.MustCompile(`^([0-9.]+) ?([kMG]?)bit(/s)?$`).FindStringSubmatch(n.Value)
		if m == nil {
			return y.src.errorf(n, "%q is no bandwidth: write 64kbit, 10Mbit or 1.5Gbit (a second)", n.Value)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		v *= map[string]float64{"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[m[2]]
		if err != nil || v < 1 || v > 1e12 {
			return y.src.errorf(n, "%q is not between 1bit and 1000Gbit", n.Value)
		}
		*bytes = v / 8
		return nil
	}
}
