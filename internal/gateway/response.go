package gateway

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// The bounds of a response message's head.
const (
	maxResponseHead   = 64 << 10
	maxResponseFields = 256
)

// A response is a parsed response message. Its parts point into the message.
type response struct {
	status int
	fields []field
	length int64 // what Content-Length says, -1 without one
	// body is the message's body; where chunked is set it has its chunks' sizes, too.
	body    []byte
	chunked bool
	old     bool // it says HTTP/1.0
}

type field struct{ name, value []byte }

// errNothing is a function that answered with no message at all.
var errNothing = errors.New("the function returned nothing: an HTTP function answers with a message, like HTTP/1.1 204 No Content")

// tokenTable says which bytes a header's name may have.
var tokenTable = makeTokenTable()

func makeTokenTable() (table [256]bool) {
	for c := range table {
		table[c] = isToken([]byte{byte(c)})
	}
	return table
}

// parse reads a message that a function wrote. The function may be hostile: what is
// not clearly one final response is refused, and nothing of it was used by then.
func (p *response) parse(message []byte, method string) error {
	if len(message) == 0 {
		return errNothing
	}
	p.fields, p.length, p.chunked = p.fields[:0], -1, false
	line, rest, err := cutLine(message)
	if err != nil {
		return err
	}
	if p.status, err = parseStatus(line); err != nil {
		return err
	}
	p.old = line[len("HTTP/1.")] == '0'
	if p.body, err = p.parseFields(message, rest); err != nil {
		return err
	}
	return p.checkBody(method)
}

// cutLine takes a line off, which must end with CR and LF and have neither before.
func cutLine(b []byte) (line, rest []byte, err error) {
	end := bytes.IndexByte(b[:min(len(b), maxResponseHead)], '\n')
	switch {
	case end < 0 && len(b) >= maxResponseHead:
		return nil, nil, fmt.Errorf("the response's head is larger than %d bytes", maxResponseHead)
	case end < 0:
		return nil, nil, errors.New("the response's head does not end: want an empty line before the body")
	case end == 0 || b[end-1] != '\r':
		return nil, nil, errors.New("a line of the response's head ends without a carriage return")
	}
	return b[:end-1], b[end+1:], nil
}

// parseStatus reads "HTTP/1.1 200 OK".
func parseStatus(line []byte) (int, error) {
	wrong := func(why string) (int, error) {
		return 0, fmt.Errorf("the response begins with %q: %s", clip(line), why)
	}
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1."))
	if !ok || len(rest) < 5 || rest[0] != '0' && rest[0] != '1' || rest[1] != ' ' || len(rest) > 5 && rest[5] != ' ' {
		return wrong("want a line like HTTP/1.1 200 OK")
	}
	status := 0
	for _, c := range rest[2:5] {
		if c < '0' || c > '9' {
			return wrong("the status must have three digits")
		}
		status = status*10 + int(c-'0')
	}
	if status < 200 || status > 599 {
		return wrong("the status must be from 200 to 599")
	}
	if !validValue(rest[5:]) {
		return wrong("it has control characters")
	}
	return status, nil
}

// clip bounds what an error quotes.
func clip(b []byte) []byte { return b[:min(len(b), 40)] }

// parseFields reads the headers and returns the body.
func (p *response) parseFields(message, rest []byte) ([]byte, error) {
	for {
		line, after, err := cutLine(rest)
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			return after, nil
		}
		if len(message)-len(after) > maxResponseHead {
			return nil, fmt.Errorf("the response's head is larger than %d bytes", maxResponseHead)
		}
		if len(p.fields) == maxResponseFields {
			return nil, fmt.Errorf("the response has more than %d headers", maxResponseFields)
		}
		if err := p.parseField(line); err != nil {
			return nil, err
		}
		rest = after
	}
}

func (p *response) parseField(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return fmt.Errorf("the header %q: want a name, a colon and a value", clip(line))
	}
	f := field{line[:colon], bytes.Trim(line[colon+1:], " \t")}
	for _, c := range f.name {
		if !tokenTable[c] {
			return fmt.Errorf("the header %q: its name has %q", clip(line), c)
		}
	}
	if !validValue(f.value) {
		return fmt.Errorf("the header %q: its value has control characters", clip(line))
	}
	p.fields = append(p.fields, f)
	return p.noteFraming(f)
}

// validValue says whether b has no control characters but tabs.
func validValue(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// noteFraming remembers what a header says of the body's size.
func (p *response) noteFraming(f field) error {
	switch {
	case len(f.name) == len("Content-Length") && bytes.EqualFold(f.name, []byte("Content-Length")):
		n, err := parseLength(f.value)
		if err != nil || p.length >= 0 {
			return fmt.Errorf("the header Content-Length %q: want one of them, with a number", clip(f.value))
		}
		p.length = n
	case len(f.name) == len("Transfer-Encoding") && bytes.EqualFold(f.name, []byte("Transfer-Encoding")):
		if p.chunked || !bytes.EqualFold(f.value, []byte("chunked")) {
			return fmt.Errorf("the header Transfer-Encoding %q: want none, or one that is chunked", clip(f.value))
		}
		p.chunked = true
	}
	return nil
}

// parseLength reads digits only.
func parseLength(b []byte) (int64, error) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseInt(string(b), 10, 64)
}

// bodiless says whether a response has no body, whatever its head says.
func bodiless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
}

// checkBody compares the body with what the head says of it.
func (p *response) checkBody(method string) error {
	switch {
	case p.chunked && p.length >= 0:
		return errors.New("the response has both Content-Length and Transfer-Encoding: leave one out")
	case p.chunked && p.old:
		return errors.New("the response is of HTTP/1.0, which has no Transfer-Encoding")
	case bodiless(method, p.status):
		p.body, p.chunked = nil, false
		return nil
	case p.chunked:
		return eachChunk(p.body, func([]byte) error { return nil })
	case p.length >= 0 && p.length != int64(len(p.body)):
		return fmt.Errorf("the response says that its body has %d bytes, and it has %d", p.length, len(p.body))
	}
	p.length = int64(len(p.body))
	return nil
}

// maxChunkLine bounds the line before a chunk: its size and extensions.
const maxChunkLine = 256

// eachChunk calls f with the content of each chunk.
func eachChunk(b []byte, f func([]byte) error) error {
	for {
		size, rest, err := cutSize(b)
		if err != nil {
			return err
		}
		if size == 0 {
			return checkTrailer(rest)
		}
		if size > int64(len(rest))-2 || rest[size] != '\r' || rest[size+1] != '\n' {
			return errors.New("a chunk of the response is cut off")
		}
		if err := f(rest[:size]); err != nil {
			return err
		}
		b = rest[size+2:]
	}
}

// cutSize takes off the line with a chunk's size.
func cutSize(b []byte) (size int64, rest []byte, err error) {
	end := bytes.Index(b[:min(len(b), maxChunkLine)], []byte("\r\n"))
	if end < 0 {
		return 0, nil, errors.New("the response's last chunk is missing")
	}
	text, _, _ := bytes.Cut(b[:end], []byte(";"))
	n, err := strconv.ParseUint(string(bytes.TrimRight(text, " \t")), 16, 31)
	if err != nil {
		return 0, nil, fmt.Errorf("a chunk of the response has the size %q", clip(text))
	}
	return int64(n), b[end+2:], nil
}

// checkTrailer reads what stands behind the last chunk. Trailers are dropped.
func checkTrailer(b []byte) error {
	for {
		line, rest, err := cutLine(b)
		if err != nil {
			return errors.New("the response does not end after its last chunk")
		}
		if len(line) == 0 {
			if len(rest) > 0 {
				return fmt.Errorf("the response goes on after its end for %d bytes", len(rest))
			}
			return nil
		}
		if bytes.IndexByte(line, ':') <= 0 {
			return fmt.Errorf("the trailer %q: want a name, a colon and a value", clip(line))
		}
		b = rest
	}
}

// copyHeader puts the message's headers into h, but for those that are the
// gateway's. One slice has room for all values.
func (p *response) copyHeader(h http.Header) {
	if len(p.fields) == 0 {
		return
	}
	values := make([]string, len(p.fields))
	for i := range p.fields {
		f := &p.fields[i]
		name := canonical(f.name)
		if hopByHop(name) {
			continue
		}
		values[i] = string(f.value)
		if known := h[name]; known == nil {
			h[name] = values[i : i+1 : i+1]
		} else {
			h[name] = append(known, values[i])
		}
	}
	p.dropListed(h)
}

// canonical names a header as net/http does. Names that are common and well written
// need no memory.
func canonical(name []byte) string {
	switch string(name) {
	case "Content-Type":
		return "Content-Type"
	case "Cache-Control":
		return "Cache-Control"
	case "Date":
		return "Date"
	case "Etag":
		return "Etag"
	case "Location":
		return "Location"
	case "Set-Cookie":
		return "Set-Cookie"
	case "Content-Length":
		return "Content-Length"
	case "Vary":
		return "Vary"
	}
	return textproto.CanonicalMIMEHeaderKey(string(name))
}

// dropListed takes away the headers that the message's Connection header names.
func (p *response) dropListed(h http.Header) {
	for _, f := range p.fields {
		if !bytes.EqualFold(f.name, []byte("Connection")) {
			continue
		}
		for name := range strings.SplitSeq(string(f.value), ",") {
			delete(h, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
}

// countedByItself is up to how many bytes net/http counts a body.
const countedByItself = 1 << 10

// write answers a request with the message.
func (p *response) write(w http.ResponseWriter, method string) error {
	h := w.Header()
	p.copyHeader(h)
	if (p.length > countedByItself || bodiless(method, p.status)) && p.length >= 0 && p.status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.FormatInt(p.length, 10)}
	}
	w.WriteHeader(p.status)
	if bodiless(method, p.status) {
		return nil
	}
	if p.chunked {
		return eachChunk(p.body, func(chunk []byte) error {
			_, err := w.Write(chunk)
			return err
		})
	}
	_, err := w.Write(p.body)
	return err
}
