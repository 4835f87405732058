package guard

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// maxServerLine bounds a line of the server, in bytes. Its INFO names the servers of a cluster.
const maxServerLine = 1 << 20

// delivery is the direction from the server to the client.
type delivery struct {
	g    *Guard
	subs *subscriptions
	in   *bufio.Reader
	to   *clientWriter

	bodies bodyReader
}

// run relays operations until either side ends, and returns the error by which it has.
func (d *delivery) run() error {
	for {
		if d.in.Buffered() == 0 {
			if err := d.to.flush(); err != nil {
				return err
			}
		}
		line, err := d.line()
		if err != nil {
			return err
		}
		if err := d.operation(line); err != nil {
			return err
		}
	}
}

// line reads a line with its end. It is valid until the next read.
func (d *delivery) line() ([]byte, error) {
	part, err := d.in.ReadSlice('\n')
	if !errors.Is(err, bufio.ErrBufferFull) {
		return part, err
	}
	line := bytes.Clone(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		if len(line) > maxServerLine {
			return nil, errProtocol
		}
		part, err = d.in.ReadSlice('\n')
		line = append(line, part...)
	}
	return line, err
}

// pass relays an operation without a body.
func (d *delivery) pass(line []byte) (err error) {
	if bytes.HasPrefix(line, infoPrefix) {
		if line, err = clientInfo(line); err != nil {
			return err
		}
	}
	return d.to.add(false, line)
}

// operation relays one operation, whose first line was read.
func (d *delivery) operation(line []byte) error {
	header := bytes.HasPrefix(line, []byte("HMSG "))
	if !header && !bytes.HasPrefix(line, []byte("MSG ")) {
		return d.pass(line)
	}
	f := strings.Fields(string(line))[1:]
	m, sid, headerSize, size, err := parseDelivery(f, header)
	if err != nil {
		return err
	}
	d.subs.delivered(sid)
	body, free, err := d.bodies.read(d.in, size+2)
	if err != nil {
		return err
	}
	defer free()
	if m.Body = body[headerSize:size]; header {
		m.Header = body[:headerSize]
	}
	if d.g.Deliver != nil {
		d.g.Deliver(&m)
	}
	return d.write(m, sid)
}

// parseDelivery parses SUBJECT SID [REPLY] [HEADER-SIZE] SIZE.
func parseDelivery(args []string, withHeader bool) (m Message, sid string, header, size int, err error) {
	sizes := 1
	if withHeader {
		sizes = 2
	}
	switch len(args) - sizes {
	case 2:
	case 3:
		m.Reply = args[2]
	default:
		return m, "", 0, 0, fmt.Errorf("%w: a delivery with %d arguments", errProtocol, len(args))
	}
	m.Subject, sid = args[0], args[1]
	if size, err = parseDelivered(args[len(args)-1]); err == nil && withHeader {
		header, err = parseDelivered(args[len(args)-2])
	}
	if err == nil && header > size {
		err = fmt.Errorf("%w: a header is larger than its message", errProtocol)
	}
	return m, sid, header, size, err
}

// parseDelivered parses the size of a message of the server. Direct gets add headers to the stored
// message, and lists of the JetStream API are larger than messages of clients may be.
func parseDelivered(text string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 31)
	if err != nil || n > maxDelivered {
		return 0, fmt.Errorf("%w: a delivery of %q bytes", errProtocol, text)
	}
	return int(n), nil
}

// maxDelivered bounds a message of the server, in bytes.
const maxDelivered = 64 << 20

func (d *delivery) write(m Message, sid string) error {
	line := make([]byte, 0, 128)
	if m.Header == nil {
		line = append(line, "MSG "...)
	} else {
		line = append(line, "HMSG "...)
	}
	line = append(append(append(line, m.Subject...), ' '), sid...)
	if m.Reply != "" {
		line = append(append(line, ' '), m.Reply...)
	}
	if m.Header != nil {
		line = strconv.AppendInt(append(line, ' '), int64(len(m.Header)), 10)
	}
	line = strconv.AppendInt(append(line, ' '), int64(len(m.Header)+len(m.Body)), 10)
	return d.to.add(false, append(line, lineEnd...), m.Header, m.Body, lineEnd)
}
