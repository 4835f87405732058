package ipc

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
)

const (
	// MaxPacket bounds one packet. A larger body is passed as a file.
	MaxPacket = 160 << 10
	// MaxFiles bounds the open files of one message.
	MaxFiles = 4
	// replyType is the type of a reply.
	replyType = "answer"
)

// A Header is the part of a message that the protocol itself reads. Its members are append-only,
// and receivers ignore unknown members.
type Header struct {
	Type string `json:"type"`
	// ID is the number of a request, and of its reply; 0: no reply is expected.
	ID uint64 `json:"seq,omitempty"`
	// Error and Kind are the error of a failed request; in replies.
	Error string        `json:"error,omitempty"`
	Kind  outboard.Kind `json:"kind,omitempty"`
	// TimeoutMS is how long the sender waits for the reply; 0: not stated.
	TimeoutMS int64 `json:"timeout_ms,omitempty"`
	// BodyFile says that the message's last file holds the body.
	BodyFile bool `json:"body_file,omitempty"`
}

// A Message is a received message. Its files belong to the receiver: Close closes the remaining
// ones.
type Message struct {
	Header
	body  []byte
	files []*os.File
	// lost is the reason that the message came without its files: this process has no free
	// descriptors. The connection stays usable.
	lost error
}

// Lost returns an error if this process had no free descriptors for the message's files. Then the
// message has no files, and no body if that was in a file.
func (m *Message) Lost() error { return m.lost }

// Decode reads the body into v. Members that v does not have are ignored.
func (m *Message) Decode(v any) error {
	if m.BodyFile && m.lost != nil {
		return m.lost
	}
	if err := json.Unmarshal(m.body, v); err != nil {
		return outboard.Errorf(outboard.Protocol, "local protocol", "message %.40q: %w", m.Type, err)
	}
	return nil
}

// Timeout returns how long the sender waits for the reply, at most limit.
func (m *Message) Timeout(limit time.Duration) time.Duration {
	if m.TimeoutMS <= 0 || m.TimeoutMS > limit.Milliseconds() {
		return limit
	}
	return time.Duration(m.TimeoutMS) * time.Millisecond
}

// File removes the first of the remaining files from the message and returns it, nil if there is
// none.
func (m *Message) File() *os.File {
	if len(m.files) == 0 {
		return nil
	}
	f := m.files[0]
	m.files = m.files[1:]
	return f
}

// Files removes all remaining files from the message and returns them.
func (m *Message) Files() []*os.File {
	files := m.files
	m.files = nil
	return files
}

// Close closes the remaining files.
func (m *Message) Close() {
	for _, f := range m.Files() {
		_ = f.Close()
	}
}

// failure returns the error that a reply carries, or the reason that it lacks its files.
func (m *Message) failure() error {
	if m.Error == "" {
		return m.lost
	}
	return &outboard.Error{Kind: m.Kind, Err: errors.New(m.Error)}
}

// encode encodes a header and a body, which is nil or marshals to a JSON object, as a packet. A
// body that does not fit is returned as a file, which the caller closes.
func encode(h Header, body any, maxBody int) (packet []byte, file *os.File, err error) {
	packet, err = json.Marshal(h)
	if err != nil || body == nil {
		return packet, nil, err
	}
	text, err := json.Marshal(body)
	if err != nil {
		return nil, nil, err
	}
	if !bytes.HasPrefix(text, []byte("{")) {
		return nil, nil, outboard.Errorf(outboard.Invalid, "local protocol", "message %s: its body is no JSON object", h.Type)
	}
	if len(text) > maxBody {
		return nil, nil, outboard.Errorf(outboard.Exhausted, "local protocol", "message %s: %d bytes, and %d are allowed", h.Type, len(text), maxBody)
	}
	if len(packet)+len(text) <= MaxPacket {
		return join(packet, text), nil, nil
	}
	if file, err = NewFile(h.Type, text); err != nil {
		return nil, nil, err
	}
	h.BodyFile = true
	packet, err = json.Marshal(h)
	return packet, file, err
}

// join appends the members of one JSON object to another, non-empty one.
func join(object, more []byte) []byte {
	if bytes.Equal(more, []byte("{}")) {
		return object
	}
	return slices.Concat(object[:len(object)-1], []byte(","), more[1:])
}

// decode decodes a packet. The files belong to the message, also after an error.
func decode(packet []byte, files []*os.File, maxBody int) (*Message, error) {
	m := &Message{files: files}
	if err := m.parse(packet); err != nil || !m.BodyFile {
		return m, err
	}
	if len(m.files) == 0 {
		return m, outboard.Errorf(outboard.Protocol, "local protocol", "message %.40q: its body did not come along", m.Type)
	}
	last := len(m.files) - 1
	file := m.files[last]
	m.files = m.files[:last]
	defer file.Close()
	var err error
	m.body, err = ReadFile(file, int64(maxBody))
	return m, err
}

// decodeShort decodes a packet whose files were lost because this process has no free descriptors.
func decodeShort(packet []byte) (*Message, error) {
	m := &Message{}
	if err := m.parse(packet); err != nil {
		return m, err
	}
	m.lost = outboard.Errorf(outboard.Exhausted, "local protocol", "message %.40q: this process has no free descriptors for its files: raise its limit (ulimit -n)", m.Type)
	return m, nil
}

// parse parses the header, and keeps the packet as the body.
func (m *Message) parse(packet []byte) error {
	if err := json.Unmarshal(packet, &m.Header); err != nil {
		return outboard.Errorf(outboard.Protocol, "local protocol", "packet: %w", err)
	}
	if m.Type == "" {
		return outboard.Errorf(outboard.Protocol, "local protocol", "a message without a type")
	}
	m.body = bytes.Clone(packet)
	return nil
}
