package policy

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxModuleBytes is the greatest size of a module, in bytes.
const maxModuleBytes = 32 << 20

// Inline replaces the names of WebAssembly modules in a file's text by their code, so that the
// text is self-contained. module returns the code. Line numbers are preserved.
func Inline(name string, text []byte, module func(name string) ([]byte, error)) ([]byte, error) {
	p := newParser(name, text, Options{})
	var document yaml.Node
	if err := yaml.Unmarshal(text, &document); err != nil {
		return nil, p.syntax(err)
	}
	lines := strings.SplitAfter(string(text), "\n")
	for _, m := range slices.Backward(namedModules(&document)) {
		code, err := module(m.value.Value)
		if err != nil {
			return nil, p.src.errorf(m.value, "module %q: %v", m.value.Value, err)
		}
		if err := m.replace(lines, code); err != nil {
			return nil, p.src.errorf(m.value, "module %q: %v", m.value.Value, err)
		}
	}
	return []byte(strings.Join(lines, "")), nil
}

// A namedModule is a member of a file that names a module.
type namedModule struct{ key, value *yaml.Node }

// namedModules returns the members "module" of all members "wasm", in their order.
func namedModules(n *yaml.Node) []namedModule {
	var list []namedModule
	for i, child := range n.Content {
		if n.Kind == yaml.MappingNode && i%2 == 1 && n.Content[i-1].Value == "wasm" && child.Kind == yaml.MappingNode {
			for j := 0; j+1 < len(child.Content); j += 2 {
				if key, value := child.Content[j], child.Content[j+1]; key.Value == "module" && value.Kind == yaml.ScalarNode {
					list = append(list, namedModule{key, value})
				}
			}
			continue
		}
		list = append(list, namedModules(child)...)
	}
	return list
}

var errWritten = errors.New("write it as in: module: name.wasm, on one line, to have it put into the file")

// replace writes the module's code in place of its name.
func (m namedModule) replace(lines []string, code []byte) error {
	if m.key.Line != m.value.Line || m.key.Line > len(lines) {
		return errWritten
	}
	line := []rune(lines[m.key.Line-1])
	from, to := m.key.Column-1, m.value.Column-1
	written := map[yaml.Style]string{
		0: m.value.Value, yaml.DoubleQuotedStyle: `"` + m.value.Value + `"`, yaml.SingleQuotedStyle: "'" + m.value.Value + "'",
	}[m.value.Style]
	if from < 0 || to < from || to > len(line) || written == "" || !strings.HasPrefix(string(line[to:]), written) {
		return errWritten
	}
	packed, err := pack(code)
	if err != nil {
		return err
	}
	rest := string(line[to:])[len(written):]
	lines[m.key.Line-1] = string(line[:from]) + "code: " + packed + rest
	return nil
}

// pack compresses a module and encodes it in base64.
func pack(code []byte) (string, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(code)
	if err := errors.Join(err, z.Close()); err != nil {
		return "", err
	}
	return base64.StdEncoding.EncodeToString(b.Bytes()), nil
}

// unpack reverses pack. It accepts uncompressed modules as well.
func unpack(text string) ([]byte, error) {
	code, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, fmt.Errorf("code is no base64: %w", err)
	}
	if !bytes.HasPrefix(code, []byte{0x1f, 0x8b}) {
		return code, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(code))
	if err != nil {
		return nil, err
	}
	code, err = io.ReadAll(io.LimitReader(z, maxModuleBytes+1))
	if err != nil {
		return nil, err
	}
	if len(code) > maxModuleBytes {
		return nil, fmt.Errorf("a module has %d bytes at most", maxModuleBytes)
	}
	return code, nil
}
