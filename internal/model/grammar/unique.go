package grammar

import (
	"encoding/json"
	"math/big"
	"slices"
)

// maxUnique bounds the values among which the items of an array with uniqueItems are.
const maxUnique = 60

// compileUnique compiles an array each of whose values occurs once. The values are those of an enum, and
// occur in its order: all orders of n values would take n! alternatives.
func compileUnique(c *compiler, o *object, path string, low, high int) (node, error) {
	values, err := itemValues(c, o, path)
	if err != nil {
		return nil, err
	}
	if low > len(values) {
		return nil, refuse(step(path, "minItems"), "%w: only %d values are different", errUnsatisfiable, len(values))
	}
	if high < 0 || high > len(values) {
		high = len(values)
	}
	if err := c.charge(len(values)*high*itemCost, path); err != nil {
		return nil, err
	}
	items := make([]node, len(values))
	for i, v := range values {
		n, err := c.literalOf(v, path)
		if err != nil {
			return nil, err
		}
		items[i] = c.define(n, path)
	}
	// after are the rest of the array after so many items, nil if there is none: first behind the last
	// value, then behind the one before, and so on.
	after := make([]node, high+1)
	for count := low; count <= high; count++ {
		after[count] = sequence{}
	}
	for _, item := range slices.Backward(items) {
		after = withItem(c, item, after, path)
	}
	return sequence{literal("["), after[0], literal("]")}, nil
}

// withItem returns the rests of an array of which an item may be the next, from those behind it.
func withItem(c *compiler, item node, behind []node, path string) []node {
	rests := make([]node, len(behind))
	for count, without := range behind {
		var options choice
		if without != nil {
			options = append(options, without)
		}
		if count+1 < len(behind) && behind[count+1] != nil {
			with := sequence{item, behind[count+1]}
			if count > 0 {
				with = append(sequence{ref("comma")}, with...)
			}
			options = append(options, with)
		}
		if len(options) > 0 {
			rests[count] = c.define(options, path)
		}
	}
	return rests
}

// itemValues returns the different values that the items of an array may have.
func itemValues(c *compiler, o *object, path string) ([]value, error) {
	at := step(path, "uniqueItems")
	items, err := target(c, o.values["items"], step(path, "items"))
	if err != nil {
		return nil, err
	}
	_, isTuple := o.get("prefixItems")
	var list []value
	if items != nil && !isTuple {
		if list, _ = items.values["enum"].([]value); list == nil && slices.Equal(typesOf(items), []string{"boolean"}) {
			list = []value{true, false}
		}
	}
	if len(list) == 0 || len(list) > maxUnique {
		return nil, refuse(at, "it is supported where items has an enum of at most %d texts, numbers or booleans: leave it out, and remove duplicates from the answer", maxUnique)
	}
	if err := only(items, step(path, "items"), "enum", "type"); err != nil {
		return nil, err
	}
	var values []value
	seen := map[string]bool{}
	for _, v := range list {
		key := encode(v)
		switch v := v.(type) {
		case *object, []value:
			return nil, refuse(at, "it is supported for texts, numbers and booleans")
		case json.Number:
			if r, ok := new(big.Rat).SetString(v.String()); ok {
				key = r.RatString() // 1 and 1.0 are equal
			}
		}
		if !seen[key] && c.typeAllows(items, v) {
			seen[key] = true
			values = append(values, v)
		}
	}
	return values, nil
}
