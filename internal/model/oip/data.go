package oip

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model"
)

// parseData converts the data of a tensor in JSON, a flat or nested array of the n elements of a shape,
// to the bytes of its elements.
func parseData(text []byte, kind model.DataType, shape []int64, n int) ([]byte, error) {
	p := dataParser{text: text, kind: kind}
	size := n * kind.Size()
	if n > len(text) || size < 0 {
		return nil, fmt.Errorf("the shape has %d elements, and its data only %d bytes of JSON", n, len(text))
	}
	p.out = make([]byte, 0, size)
	if err := p.parse(); err != nil {
		return nil, err
	}
	if p.count != n {
		return nil, fmt.Errorf("the data have %d elements, the shape has %d", p.count, n)
	}
	if nested := p.nested; len(nested) > 1 && len(nested) == len(shape) && !slices.Equal(nested, shape) {
		return nil, fmt.Errorf("the data are nested as %v, the shape is %v", nested, shape)
	}
	return p.out, nil
}

// A dataParser flattens an array of JSON.
type dataParser struct {
	text  []byte
	at    int
	kind  model.DataType
	out   []byte
	count int
	// open has the lengths so far of the arrays that are open, and nested those of the closed ones at
	// each depth, which must have the same length; -1 before the first.
	open, nested []int64
}

// parse parses the whole array. The text is known to be valid JSON.
func (p *dataParser) parse() error {
	for ; p.at < len(p.text); p.at++ {
		switch c := p.text[p.at]; c {
		case ' ', '\t', '\r', '\n', ',':
		case '[':
			if err := p.beginArray(); err != nil {
				return err
			}
		case ']':
			if err := p.endArray(); err != nil {
				return err
			}
		default:
			switch len(p.open) {
			case 0:
				return fmt.Errorf("the data are no array")
			case len(p.nested):
			default:
				return fmt.Errorf("element %d is not nested as deep as the elements before it", p.count)
			}
			if err := p.element(c); err != nil {
				return fmt.Errorf("element %d: %w", p.count, err)
			}
			p.count++
			p.open[len(p.open)-1]++
		}
	}
	return nil
}

// beginArray begins an array.
func (p *dataParser) beginArray() error {
	depth := len(p.open)
	switch {
	case depth == maxRank:
		return fmt.Errorf("the data are nested more than %d deep", maxRank)
	case depth > 0:
		p.open[depth-1]++
	}
	p.open = append(p.open, 0)
	if depth < len(p.nested) {
		return nil
	}
	if p.count > 0 {
		return fmt.Errorf("element %d is nested deeper than the elements before it", p.count)
	}
	p.nested = append(p.nested, -1)
	return nil
}

// endArray ends an array.
func (p *dataParser) endArray() error {
	depth := len(p.open) - 1
	length := p.open[depth]
	p.open = p.open[:depth]
	if known := &p.nested[depth]; *known < 0 {
		*known = length
	} else if *known != length {
		return fmt.Errorf("before element %d an array has %d elements, and one at the same depth %d", p.count, length, *known)
	}
	return nil
}

// element parses one element, which begins with c, and leaves the position at its last byte.
func (p *dataParser) element(c byte) error {
	end := p.at
	if c == '"' {
		for end++; end < len(p.text) && p.text[end] != '"'; end++ {
			if p.text[end] == '\\' {
				end++
			}
		}
		end++
	} else {
		for end < len(p.text) && bytes.IndexByte([]byte(" \t\r\n,]"), p.text[end]) < 0 {
			end++
		}
	}
	if end > len(p.text) {
		return fmt.Errorf("it is truncated")
	}
	token := p.text[p.at:end]
	p.at = end - 1
	return p.append(token)
}

func (p *dataParser) append(token []byte) error {
	switch p.kind {
	case model.Bytes:
		var s string
		if err := json.Unmarshal(token, &s); err != nil {
			return fmt.Errorf("%.40s is no string", token)
		}
		p.out = binary.LittleEndian.AppendUint32(p.out, uint32(len(s)))
		p.out = append(p.out, s...)
		return nil
	case model.Bool:
		switch string(token) {
		case "true", "1":
			p.out = append(p.out, 1)
		case "false", "0":
			p.out = append(p.out, 0)
		default:
			return fmt.Errorf("%.40s is no boolean", token)
		}
		return nil
	case model.FP16, model.BF16, model.FP32, model.FP64:
		return p.appendFloat(token)
	case model.Uint8, model.Uint16, model.Uint32, model.Uint64:
		v, err := strconv.ParseUint(string(token), 10, 8*p.kind.Size())
		if err != nil {
			return fmt.Errorf("%.40s is no %v", token, p.kind)
		}
		p.appendInteger(v)
		return nil
	default:
		return p.appendSigned(token)
	}
}

func (p *dataParser) appendSigned(token []byte) error {
	v, err := strconv.ParseInt(string(token), 10, 8*p.kind.Size())
	if err != nil {
		return fmt.Errorf("%.40s is no %v", token, p.kind)
	}
	p.appendInteger(uint64(v))
	return nil
}

func (p *dataParser) appendInteger(v uint64) {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], v)
	p.out = append(p.out, b[:p.kind.Size()]...)
}

func (p *dataParser) appendFloat(token []byte) error {
	bits := 64
	if p.kind != model.FP64 {
		bits = 32
	}
	v, err := strconv.ParseFloat(string(token), bits)
	if err != nil || token[0] != '-' && (token[0] < '0' || token[0] > '9') {
		return fmt.Errorf("%.40s is no %v", token, p.kind)
	}
	switch p.kind {
	case model.FP64:
		p.appendInteger(math.Float64bits(v))
	case model.FP32:
		p.appendInteger(uint64(math.Float32bits(float32(v))))
	case model.FP16:
		p.appendInteger(uint64(model.Float16(float32(v))))
	default:
		p.appendInteger(uint64(model.BFloat16(float32(v))))
	}
	return nil
}

// appendData appends the elements of a tensor as a flat JSON array.
func appendData(b []byte, t *model.Tensor) ([]byte, error) {
	b = append(b, '[')
	size := t.Type.Size()
	rest := t.Data
	for first := true; len(rest) > 0; first = false {
		if !first {
			b = append(b, ',')
		}
		if t.Type == model.Bytes {
			if len(rest) < 4 || int(binary.LittleEndian.Uint32(rest)) > len(rest)-4 {
				return nil, outboard.Errorf(outboard.Protocol, "infer", "output %q is truncated", t.Name)
			}
			size = 4 + int(binary.LittleEndian.Uint32(rest))
			if !utf8.Valid(rest[4:size]) {
				return nil, outboard.Errorf(outboard.Invalid, "infer", "output %q has elements that are not UTF-8, which JSON can't have: ask for it as binary data", t.Name)
			}
		}
		var err error
		if b, err = appendElement(b, t, rest[:size]); err != nil {
			return nil, err
		}
		rest = rest[size:]
	}
	return append(b, ']'), nil
}

func appendElement(b []byte, t *model.Tensor, e []byte) ([]byte, error) {
	switch t.Type {
	case model.Bytes:
		return appendString(b, string(e[4:])), nil
	case model.Bool:
		return strconv.AppendBool(b, e[0] != 0), nil
	case model.Uint8:
		return strconv.AppendUint(b, uint64(e[0]), 10), nil
	case model.Uint16:
		return strconv.AppendUint(b, uint64(binary.LittleEndian.Uint16(e)), 10), nil
	case model.Uint32:
		return strconv.AppendUint(b, uint64(binary.LittleEndian.Uint32(e)), 10), nil
	case model.Uint64:
		return strconv.AppendUint(b, binary.LittleEndian.Uint64(e), 10), nil
	case model.Int8:
		return strconv.AppendInt(b, int64(int8(e[0])), 10), nil
	case model.Int16:
		return strconv.AppendInt(b, int64(int16(binary.LittleEndian.Uint16(e))), 10), nil
	case model.Int32:
		return strconv.AppendInt(b, int64(int32(binary.LittleEndian.Uint32(e))), 10), nil
	case model.Int64:
		return strconv.AppendInt(b, int64(binary.LittleEndian.Uint64(e)), 10), nil
	case model.FP16:
		return appendFloat(b, t, float64(model.FromFloat16(binary.LittleEndian.Uint16(e))), 32)
	case model.BF16:
		return appendFloat(b, t, float64(model.FromBFloat16(binary.LittleEndian.Uint16(e))), 32)
	case model.FP32:
		return appendFloat(b, t, float64(math.Float32frombits(binary.LittleEndian.Uint32(e))), 32)
	default:
		return appendFloat(b, t, math.Float64frombits(binary.LittleEndian.Uint64(e)), 64)
	}
}

func appendFloat(b []byte, t *model.Tensor, v float64, bits int) ([]byte, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil, outboard.Errorf(outboard.Invalid, "infer", "output %q has the element %v, which JSON can't have: ask for it as binary data", t.Name, v)
	}
	return strconv.AppendFloat(b, v, 'g', -1, bits), nil
}
