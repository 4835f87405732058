package guard

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
)

// maxServerLine bounds a line of the server, in bytes. Its INFO names the servers of a cluster.
const maxServerLine = 1 << 20

// clientWriter writes whole operations to the client, for both directions: the guard answers
// refused requests itself.
type clientWriter struct {
	mu  sync.Mutex
	out *bufio.Writer
}

// message writes a message without a header, at once.
func (w *clientWriter) message(subject, sid string, body []byte) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, _ = fmt.Fprintf(w.out, "MSG %s %s %d\r\n", subject, sid, len(body))
	_, _ = w.out.Write(body)
	_, _ = w.out.WriteString("\r\n")
	return w.out.Flush() // It returns the errors of the writes, too.
}

func (w *clientWriter) flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.out.Flush()
}

// delivery is the direction from the server to the client.
type delivery struct {
	g    *Guard
	subs *subscriptions
	in   *bufio.Reader
	to   *clientWriter
	body []byte
}

// run relays operations until either side ends.
func (d *delivery) run() {
	for {
		if d.in.Buffered() == 0 && d.to.flush() != nil {
			return
		}
		line, err := d.line()
		if err != nil || d.operation(line) != nil {
			return
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
	d.to.mu.Lock()
	defer d.to.mu.Unlock()
	_, err = d.to.out.Write(line)
	return err
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
	if cap(d.body) < size+2 {
		d.body = make([]byte, size+2)
	}
	body := d.body[:size+2]
	if _, err := io.ReadFull(d.in, body); err != nil {
		return err
	}
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
	d.to.mu.Lock()
	defer d.to.mu.Unlock()
	w := d.to.out
	op := "MSG "
	if m.Header != nil {
		op = "HMSG "
	}
	_, _ = w.WriteString(op + m.Subject + " " + sid)
	if m.Reply != "" {
		_, _ = w.WriteString(" " + m.Reply)
	}
	if m.Header != nil {
		_, _ = w.WriteString(" " + strconv.Itoa(len(m.Header)))
	}
	_, _ = w.WriteString(" " + strconv.Itoa(len(m.Header)+len(m.Body)) + "\r\n")
	_, _ = w.Write(m.Header)
	_, _ = w.Write(m.Body)
	_, err := w.WriteString("\r\n")
	return err
}
