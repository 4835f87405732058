package outgoing

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"go.yaml.in/yaml/v3"

	"github.com/outboard-run/outboard/internal/lazyregexp"
)

// The bounds of a document besides its size. Aliases repeat what they refer to.
const (
	maxValues = 1 << 19
	maxDepth  = 256
)

// parseDocument parses JSON or YAML into the values that gojq knows, as JSON has them: dates and
// keys are texts. yaml.Unmarshal returns values of other types as well, and compares each key of a
// mapping with all others. It returns the number of values, too.
func parseDocument(body []byte) (root map[string]any, values int, err error) {
	var node yaml.Node
	if err := yaml.Unmarshal(body, &node); err != nil || node.Kind != yaml.DocumentNode { // JSON is YAML
		return nil, 0, errors.New("it is neither JSON nor YAML")
	}
	c := yamlConverter{left: maxValues}
	v, err := c.value(node.Content[0], 0)
	if err != nil {
		return nil, 0, err
	}
	root, ok := v.(map[string]any)
	if !ok {
		return nil, 0, errors.New("it is no mapping")
	}
	return root, maxValues - c.left, nil
}

// yamlConverter converts nodes of YAML to values; left is how many more it may make.
type yamlConverter struct{ left int }

func (c *yamlConverter) value(n *yaml.Node, depth int) (any, error) {
	if c.left--; c.left < 0 {
		return nil, fmt.Errorf("it has more than %d values, aliases counted as often as they occur", maxValues)
	}
	if depth > maxDepth {
		return nil, fmt.Errorf("line %d is nested more than %d times", n.Line, maxDepth)
	}
	switch n.Kind {
	case yaml.AliasNode:
		return c.value(n.Alias, depth+1) // an alias in what it refers to ends with the depth
	case yaml.MappingNode:
		out := make(map[string]any, len(n.Content)/2)
		return out, c.mapping(out, n, depth)
	case yaml.SequenceNode:
		out := make([]any, len(n.Content))
		for i, e := range n.Content {
			var err error
			if out[i], err = c.value(e, depth+1); err != nil {
				return nil, err
			}
		}
		return out, nil
	default:
		return scalar(n)
	}
}

// mapping adds the members of a mapping to out, but for those that out has.
func (c *yamlConverter) mapping(out map[string]any, n *yaml.Node, depth int) error {
	var merged []*yaml.Node
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, of := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode {
			key = key.Alias
		}
		switch {
		case key.Kind != yaml.ScalarNode:
			return fmt.Errorf("line %d: a key is no text", key.Line)
		case key.ShortTag() == "!!merge":
			merged = append(merged, of)
			continue
		}
		if _, has := out[key.Value]; has {
			continue
		}
		v, err := c.value(of, depth+1)
		if err != nil {
			return err
		}
		out[key.Value] = v
	}
	for _, of := range merged {
		if err := c.merge(out, of, depth+1); err != nil {
			return err
		}
	}
	return nil
}

// merge adds the members of the mappings that a merge key ("<<") names.
func (c *yamlConverter) merge(out map[string]any, of *yaml.Node, depth int) error {
	if c.left--; c.left < 0 || depth > maxDepth {
		return fmt.Errorf("line %d: merged mappings are nested too often", of.Line)
	}
	switch of.Kind {
	case yaml.AliasNode:
		return c.merge(out, of.Alias, depth+1)
	case yaml.MappingNode:
		return c.mapping(out, of, depth)
	case yaml.SequenceNode:
		for _, e := range of.Content {
			if err := c.merge(out, e, depth+1); err != nil {
				return err
			}
		}
		return nil
	default:
		return fmt.Errorf("line %d: only mappings can be merged", of.Line)
	}
}

// jsonNumber is the syntax of a number (RFC 8259, section 6).
var jsonNumber = lazyregexp.New(`^-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?$`)

// maxDigits bounds a number that is passed on as it is written.
const maxDigits = 64

func scalar(n *yaml.Node) (any, error) {
	switch n.ShortTag() {
	case "!!null":
		return nil, nil //nolint:nilnil // This is the value null.
	case "!!bool", "!!int", "!!float":
		if v, err := strconv.Atoi(n.Value); err == nil && strconv.Itoa(v) == n.Value {
			return v, nil // most numbers; 010 and 1_000 are others
		}
		var v any
		if err := n.Decode(&v); err != nil {
			return nil, fmt.Errorf("line %d: %w", n.Line, err)
		}
		switch v := v.(type) {
		case bool, int, float64:
			return v, nil
		case uint64:
			if len(n.Value) <= maxDigits && jsonNumber.MatchString(n.Value) {
				return json.Number(n.Value), nil
			}
			return float64(v), nil
		}
	}
	return n.Value, nil
}
