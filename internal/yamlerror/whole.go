package yamlerror

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// CheckWhole returns an error for the first number with a fraction in a document where a type, into
// which the document was decoded, has a whole number: the YAML package drops the fraction. Aliases are
// not followed.
func CheckWhole(document *yaml.Node, t reflect.Type) error {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch document.Kind {
	case yaml.ScalarNode:
		number, err := strconv.ParseFloat(document.Value, 64)
		if isWhole(t) && err == nil && number != math.Trunc(number) {
			return fmt.Errorf("line %d: %s: want a whole number", document.Line, document.Value)
		}
	case yaml.DocumentNode:
		return checkEach(document.Content, func(int) reflect.Type { return t })
	case yaml.SequenceNode:
		if t.Kind() == reflect.Slice {
			return checkEach(document.Content, func(int) reflect.Type { return t.Elem() })
		}
	case yaml.MappingNode:
		return checkEach(document.Content, func(i int) reflect.Type { return memberType(t, document.Content, i) })
	case yaml.AliasNode:
	}
	return nil
}

// checkEach checks nodes whose types are known; nil is that of others.
func checkEach(nodes []*yaml.Node, typeOf func(i int) reflect.Type) error {
	for i, n := range nodes {
		if t := typeOf(i); t != nil {
			if err := CheckWhole(n, t); err != nil {
				return err
			}
		}
	}
	return nil
}

// memberType returns the type of a node of a mapping, whose keys and values alternate; nil for a key.
func memberType(t reflect.Type, content []*yaml.Node, i int) reflect.Type {
	switch {
	case i%2 == 0:
	case t.Kind() == reflect.Map:
		return t.Elem()
	case t.Kind() == reflect.Struct:
		for f := range t.Fields() {
			if name, _, _ := strings.Cut(f.Tag.Get("yaml"), ","); name == content[i-1].Value {
				return f.Type
			}
		}
	}
	return nil
}

func isWhole(t reflect.Type) bool { return t.Kind() >= reflect.Int && t.Kind() <= reflect.Uint64 }
