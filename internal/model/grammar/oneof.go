package grammar

import (
	"slices"
)

// exclusive reports whether no value can satisfy two of the schemas of a oneOf, as far as types and
// constants determine: then it means the same as anyOf.
func exclusive(c *compiler, list []value, path string) (bool, error) {
	if distinct(list) {
		return true, nil
	}
	objects := make([]*object, len(list))
	for i, v := range list {
		o, err := target(c, v, path)
		if err != nil || o == nil || !slices.Equal(typesOf(o), []string{"object"}) {
			return false, err
		}
		objects[i] = o
	}
	properties, _ := objects[0].values["properties"].(*object)
	if properties == nil {
		return false, nil
	}
	for _, name := range properties.keys {
		if discriminates, err := discriminates(c, name, objects, path); discriminates || err != nil {
			return discriminates, err
		}
	}
	return false, nil
}

// target returns the schema to which a schema refers, or itself, nil if that is no object.
func target(c *compiler, v value, path string) (*object, error) {
	for range maxDepth {
		o, _ := v.(*object)
		if o == nil {
			return nil, nil
		}
		text, refers := o.values["$ref"].(string)
		if !refers {
			return o, nil
		}
		if err := c.charge(len(text)+itemCost, path); err != nil {
			return nil, err
		}
		var err error
		if v, err = c.resolve(text, path); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// discriminates reports whether all objects require a property, whose texts differ between them.
func discriminates(c *compiler, name string, objects []*object, path string) (bool, error) {
	seen := map[string]bool{}
	for _, o := range objects {
		required, _ := o.values["required"].([]value)
		if err := c.charge((len(required)+1)*itemCost, path); err != nil {
			return false, err
		}
		properties, _ := o.values["properties"].(*object)
		if properties == nil || !slices.Contains(required, value(name)) {
			return false, nil
		}
		texts, err := texts(c, properties.values[name], path)
		if err != nil || len(texts) == 0 {
			return false, err
		}
		for _, text := range texts {
			if seen[text] {
				return false, nil
			}
			seen[text] = true
		}
	}
	return true, nil
}

// texts returns the only values that a schema allows, none if others than texts are among them.
func texts(c *compiler, v value, path string) ([]string, error) {
	o, err := target(c, v, path)
	if err != nil || o == nil {
		return nil, err
	}
	allowed, _ := o.values["enum"].([]value)
	if constant, there := o.get("const"); there {
		allowed = []value{constant}
	}
	if err := c.charge(len(allowed)*itemCost, path); err != nil {
		return nil, err
	}
	list := make([]string, len(allowed))
	for i, item := range allowed {
		text, ok := item.(string)
		if !ok {
			return nil, nil
		}
		list[i] = text
	}
	return list, nil
}

// distinct reports whether schemas differ in their types or constants.
func distinct(list []value) bool {
	seen := map[string]bool{}
	for _, v := range list {
		o, ok := v.(*object)
		if !ok {
			return false
		}
		kinds := typesOf(o)
		if constant, there := o.get("const"); there {
			kinds = []string{encode(constant)}
		}
		if len(kinds) == 0 {
			return false
		}
		for _, k := range kinds {
			if k == "integer" {
				k = "number"
			}
			if seen[k] {
				return false
			}
			seen[k] = true
		}
	}
	return true
}
