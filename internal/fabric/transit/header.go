package transit

import (
	"encoding/binary"
	"errors"
	"slices"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

var errHeader = errors.New("transit: no header")

// AppendHeader encodes a header as the message that carries it in band.
func AppendHeader(md metadata.MD) *call.Message {
	var b []byte
	keys := make([]string, 0, len(md))
	for key := range md {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	for _, key := range keys {
		for _, value := range md[key] {
			b = binary.AppendUvarint(b, uint64(len(key)))
			b = append(b, key...)
			b = binary.AppendUvarint(b, uint64(len(value)))
			b = append(b, value...)
		}
	}
	if b == nil {
		b = []byte{}
	}
	return &call.Message{Data: b}
}

// ParseHeader decodes a header that AppendHeader has encoded. It frees m.
func ParseHeader(m *call.Message) (metadata.MD, error) {
	defer m.Free()
	data, err := m.Bytes()
	if err != nil {
		return nil, err
	}
	b := slices.Clone(data) // its sender may still write there
	md := metadata.MD{}
	for len(b) > 0 {
		var key, value string
		if key, b, err = parseString(b); err != nil {
			return nil, err
		}
		if value, b, err = parseString(b); err != nil {
			return nil, err
		}
		md[key] = append(md[key], value)
	}
	return md, nil
}

func parseString(b []byte) (string, []byte, error) {
	size, n := binary.Uvarint(b)
	if n <= 0 || size > uint64(len(b)-n) {
		return "", nil, errHeader
	}
	b = b[n:]
	return string(b[:size]), b[size:], nil
}
