//go:build !wasip1

package nn

// Fake computes the outputs of models in native builds, for a function's own tests. While it is nil
// every call fails.
var Fake func(model string, inputs []Tensor) (outputs [][]byte, err error)

// The graphs and contexts of native builds, numbered by their indexes, from 1.
var (
	graphs   []string
	contexts []nativeContext
)

type nativeContext struct {
	model   string
	inputs  []Tensor
	outputs [][]byte
}

func loadByName(name string) (uint32, error) {
	if Fake == nil {
		return 0, &Error{Op: "load " + name, Code: NotFound, Text: "no host: this is a native build; in tests set nn.Fake"}
	}
	graphs = append(graphs, name)
	return uint32(len(graphs)), nil
}

func initContext(graph uint32) (uint32, error) {
	contexts = append(contexts, nativeContext{model: graphs[graph-1]})
	return uint32(len(contexts)), nil
}

func setInput(context, index uint32, t *Tensor) error {
	c := &contexts[context-1]
	for len(c.inputs) <= int(index) {
		c.inputs = append(c.inputs, Tensor{})
	}
	c.inputs[index] = *t
	return nil
}

func compute(context uint32) (err error) {
	c := &contexts[context-1]
	c.outputs, err = Fake(c.model, c.inputs)
	return err
}

func getOutput(context, index uint32, buffer []byte) (int, error) {
	outputs := contexts[context-1].outputs
	switch {
	case int(index) >= len(outputs):
		return 0, &Error{Op: "get output", Code: InvalidArgument, Text: "there is no such output"}
	case len(outputs[index]) > len(buffer):
		return 0, &Error{Op: "get output", Code: TooLarge, Text: "the buffer is too small"}
	}
	return copy(buffer, outputs[index]), nil
}
