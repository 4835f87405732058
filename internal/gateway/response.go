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

// Limits of the head of a response message.
const (
	maxResponseHead   = 64 << 10
	maxResponseFields = 256
)

// response is a parsed response message. Its fields point into the message.
type response struct {
	app    string // whose name begins the paths of clients; "": they are those of the message
	status int
	fields []field
	length int64 // of Content-Length, -1 without one
	// body is the message's body; if chunked is set, with the framing of the chunks.
	body    []byte
	chunked bool
	old     bool // the version is HTTP/1.0
	// trailers are the fields after the last chunk.
	trailers []field
}

type field struct{ name, value []byte }

// errNothing is the error of an empty response.
var errNothing = errors.New("the function returned nothing: an HTTP function answers with a message, like HTTP/1.1 204 No Content")

// tokenTable has the bytes that the name of a header field may have.
var tokenTable = makeTokenTable()

func makeTokenTable() (table [256]bool) {
	for c := range table {
		table[c] = isToken([]byte{byte(c)})
	}
	return table
}

// parse parses a message of a function, which may be hostile: a message that is not unambiguously
// one final response is refused before any part of it is used.
func (p *response) parse(message []byte, method string) error {
	if err := p.parseHead(message); err != nil {
		return err
	}
	return p.checkBody(method)
}

// parseHead parses the head of a message, whose body need not be complete.
func (p *response) parseHead(message []byte) error {
	if len(message) == 0 {
		return errNothing
	}
	p.fields, p.trailers, p.length, p.chunked = p.fields[:0], p.trailers[:0], -1, false
	line, rest, err := cutLine(message)
	if err != nil {
		return err
	}
	if p.status, err = parseStatus(line); err != nil {
		return err
	}
	p.old = line[len("HTTP/1.")] == '0'
	p.body, err = p.parseFields(message, rest)
	return err
}

// cutLine splits off a line, which must end with CR LF and have no other CR or LF.
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

// clip bounds a quotation in an error.
func clip(b []byte) []byte { return b[:min(len(b), 40)] }

// parseFields parses the headers and returns the body.
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

// validValue reports whether b has no control characters other than tabs.
func validValue(b []byte) bool {
	for _, c := range b {
		if c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}

// noteFraming records the framing of the body.
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

// parseLength parses a number of digits only.
func parseLength(b []byte) (int64, error) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	return strconv.ParseInt(string(b), 10, 64)
}

// bodiless reports whether a response has no body, whatever its head says.
func bodiless(method string, status int) bool {
	return method == http.MethodHead || status == http.StatusNoContent || status == http.StatusNotModified
}

// checkBody compares the body with the framing in the head.
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
		return eachChunk(p.body, func([]byte) error { return nil }, p.addTrailer)
	case p.length >= 0 && p.length != int64(len(p.body)):
		return fmt.Errorf("the response says that its body has %d bytes, and it has %d", p.length, len(p.body))
	}
	p.length = int64(len(p.body))
	return nil
}

// maxChunkLine bounds the line before a chunk: its size and extensions.
const maxChunkLine = 256

// eachChunk calls f with the content of each chunk, and then trailer with each trailer field.
func eachChunk(b []byte, f func([]byte) error, trailer func(line []byte) error) error {
	for {
		size, rest, err := cutSize(b)
		if err != nil {
			return err
		}
		if size == 0 {
			return eachTrailer(rest, trailer)
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

// cutSize splits off the line with a chunk's size.
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

// eachTrailer calls f with each line after the last chunk.
func eachTrailer(b []byte, f func(line []byte) error) error {
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
		if err := f(line); err != nil {
			return err
		}
		b = rest
	}
}

// addTrailer parses a trailer field.
func (p *response) addTrailer(line []byte) error {
	colon := bytes.IndexByte(line, ':')
	if colon <= 0 {
		return fmt.Errorf("the trailer %q: want a name, a colon and a value", clip(line))
	}
	f := field{line[:colon], bytes.Trim(line[colon+1:], " \t")}
	switch {
	case !isToken(f.name):
		return fmt.Errorf("the trailer %q: its name is no token", clip(line))
	case !validValue(f.value):
		return fmt.Errorf("the trailer %q: its value has control characters", clip(line))
	case len(p.trailers) == maxResponseFields:
		return fmt.Errorf("the response has more than %d trailers", maxResponseFields)
	}
	p.trailers = append(p.trailers, f)
	return nil
}

// headerOnly reports whether a field has no meaning in a trailer (RFC 9110, section 6.5.1): it
// concerns framing, routing, authentication or the processing of the body.
func headerOnly(canonical string) bool {
	switch canonical {
	case "Host", "Authorization", "Www-Authenticate", "Set-Cookie", "Cookie", "Content-Encoding", "Content-Type", "Content-Range",
		"Cache-Control", "Age", "Expires", "Date", "Location", "Retry-After", "Vary", "Warning", "Range", "Max-Forwards":
		return true
	}
	return hopByHop(canonical)
}

// copyTrailers adds the trailers to h in the form that net/http requires.
func (p *response) copyTrailers(h http.Header) {
	for _, f := range p.trailers {
		if name := canonical(f.name); !headerOnly(name) {
			h.Add(http.TrailerPrefix+name, string(f.value))
		}
	}
}

// copyHeader copies the message's header fields to h, except those that the gateway sets. All
// values share one slice.
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
	if p.app != "" {
		addPrefix(h["Location"], p.app)
	}
}

// addPrefix adds an app's name to locations that are paths. The function sees the paths of its requests
// without it, so the redirects of net/http in a guest lack it, those of http.ServeMux among them. A
// path with the prefix stays as it is: its function has read X-Forwarded-Prefix.
func addPrefix(locations []string, app string) {
	for i, location := range locations {
		if strings.HasPrefix(location, "/") && !strings.HasPrefix(location, "//") && !isBelow(location, app) {
			locations[i] = "/" + app + location
		}
	}
}

// isBelow reports whether a path begins with the name of an app.
func isBelow(path, app string) bool {
	rest, ok := strings.CutPrefix(path[1:], app)
	return ok && (rest == "" || strings.IndexByte("/?#", rest[0]) >= 0)
}

// canonical returns the canonical name of a header field. Common names that are canonical already
// need no allocation.
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

// dropListed removes the header fields that the Connection field names.
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

// countedByItself is the size up to which net/http sets Content-Length itself.
const countedByItself = 1 << 10

// write answers a request with the message.
func (p *response) write(w http.ResponseWriter, method string) error {
	h := w.Header()
	p.copyHeader(h)
	if (p.length > countedByItself || bodiless(method, p.status)) && p.length >= 0 && p.status != http.StatusNoContent {
		h["Content-Length"] = []string{strconv.FormatInt(p.length, 10)}
	}
	if p.chunked {
		p.copyTrailers(h) // net/http sends chunks if it sees them before the head
	}
	w.WriteHeader(p.status)
	if bodiless(method, p.status) {
		return nil
	}
	if p.chunked {
		return eachChunk(p.body, func(chunk []byte) error {
			_, err := w.Write(chunk)
			return err
		}, func([]byte) error { return nil })
	}
	_, err := w.Write(p.body)
	return err
}
