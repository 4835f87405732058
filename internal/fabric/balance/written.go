package balance

import (
	"fmt"
	"path"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// A writtenRule is a rule with the text of the file that it was decoded from: a setting whose zero
// value stands for a default can be written as zero there.
type writtenRule struct {
	*Rule
	node *yaml.Node
}

// check returns the first mistake of the rule, nil if there is none.
func (r *writtenRule) check() *settingError {
	if r.wrote("services") && len(r.Services) == 0 {
		return &settingError{"services", "this list is empty, which restricts nothing: leave it out, or name services"}
	}
	for _, pattern := range r.Services {
		if _, err := path.Match(pattern, ""); err != nil {
			return &settingError{"services", fmt.Sprintf("%q is no pattern", pattern)}
		}
	}
	complete := r.Config
	complete.setDefaults()
	if err := complete.validate(); err != nil {
		return err
	}
	if at, value := r.replacedZero(reflect.ValueOf(&complete).Elem(), reflect.ValueOf(&r.Config).Elem(), nil); at != "" {
		return &settingError{at, fmt.Sprintf("zero stands for the default here, %v: leave it out, or set another value", value)}
	}
	if e := complete.Ejection; r.wrote("ejection") && !e.enabled() {
		return &settingError{"ejection", "without consecutive or success_rate above zero no endpoint is ever ejected: set one, or leave ejection out"}
	} else if r.wrote("ejection.longest") && e.Longest < e.Base {
		return &settingError{"ejection.longest", fmt.Sprintf("%v is below base, which is %v", e.Longest, e.Base)}
	}
	return nil
}

// wrote reports whether the file has the member at a path.
func (r *writtenRule) wrote(at string) bool { return memberAt(r.node, strings.Split(at, ".")) != nil }

// replacedZero returns the path of the first setting that the file sets to the zero value and that
// has a default, with that default. The two configurations are with and without defaults.
func (r *writtenRule) replacedZero(complete, decoded reflect.Value, above []string) (at string, value any) {
	for i, field := range reflect.VisibleFields(complete.Type()) {
		tag := field.Tag.Get("yaml")
		if tag == "-" {
			continue
		}
		below := append(slices.Clone(above), tag)
		if field.Type.Kind() == reflect.Struct {
			if at, value = r.replacedZero(complete.Field(i), decoded.Field(i), below); at != "" {
				return at, value
			}
			continue
		}
		if decoded.Field(i).IsZero() && !complete.Field(i).IsZero() && memberAt(r.node, below) != nil {
			return strings.Join(below, "."), complete.Field(i).Interface()
		}
	}
	return "", nil
}

// resolved returns the node that an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// memberAt returns the value of the member at a path below a mapping, nil if there is none.
func memberAt(n *yaml.Node, at []string) *yaml.Node {
	for _, name := range at {
		if n = valueOf(n, name); n == nil {
			return nil
		}
	}
	return n
}

func valueOf(n *yaml.Node, name string) *yaml.Node {
	for i := 0; n.Kind == yaml.MappingNode && i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return resolved(n.Content[i+1])
		}
	}
	return nil
}

// nodeAt returns the innermost node at a path below a mapping that the file has.
func nodeAt(n *yaml.Node, at string) *yaml.Node {
	for name := range strings.SplitSeq(at, ".") {
		below := valueOf(n, name)
		if below == nil {
			return n
		}
		n = below
	}
	return n
}
