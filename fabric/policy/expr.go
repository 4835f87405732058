package policy

import "google.golang.org/protobuf/reflect/protoreflect"

type expression struct{ text string }

func (e *expression) bool(*Exchange) (bool, error)     { return false, nil }
func (e *expression) string(*Exchange) (string, error) { return "", nil }

type inputs struct {
	methods map[string]int
	list    []protoreflect.MessageDescriptor
}

// Of is the number of the method's request type; 0: not known.
func (in *inputs) of(method string) int { return in.methods[method] }

func (in *inputs) descriptor(i int) protoreflect.MessageDescriptor {
	if i == 0 {
		return nil
	}
	return in.list[i-1]
}
