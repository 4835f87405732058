package state

import (
	"errors"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
)

const (
	// sizesHeader holds the sizes of the records in a message of several records.
	sizesHeader = "Outboard-Sizes"

	packRecords = 1000
	packBytes   = MaxValue - 64<<10 // It leaves room for the header.
)

// pack packs records into one message.
func pack(subject string, data [][]byte, size int) *nats.Msg {
	m := &nats.Msg{Subject: subject, Data: data[0], Header: make(nats.Header, 6)}
	if len(data) == 1 {
		return m
	}
	m.Data = make([]byte, 0, size)
	sizes := make([]byte, 0, 6*len(data))
	for i, d := range data {
		if i > 0 {
			sizes = append(sizes, ',')
		}
		sizes = strconv.AppendInt(sizes, int64(len(d)), 10)
		m.Data = append(m.Data, d...)
	}
	m.Header[sizesHeader] = []string{string(sizes)}
	return m
}

// unpack reads the records of a direct get's answer: at least one.
func unpack(key string, m *nats.Msg) ([]Record, error) {
	s, err := storedOf(m)
	if err != nil {
		return nil, err
	}
	parts, err := splitRecords(m.Data, m.Header.Get(sizesHeader))
	records := make([]Record, len(parts))
	for i, data := range parts {
		records[i] = Record{Key: key, Seq: s.seq, Data: data, Time: s.time}
	}
	return records, err
}

var errSizes = errors.New("the sizes of records are not those of the message")

// splitRecords splits data into records of these sizes. Without sizes it is one record.
func splitRecords(data []byte, sizes string) ([][]byte, error) {
	if sizes == "" {
		return [][]byte{data}, nil
	}
	parts := make([][]byte, 0, 1+strings.Count(sizes, ","))
	for text := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || n > uint64(len(data)) {
			return nil, errSizes
		}
		parts = append(parts, data[:n:n])
		data = data[n:]
	}
	if len(data) > 0 {
		return nil, errSizes
	}
	return parts, nil
}
