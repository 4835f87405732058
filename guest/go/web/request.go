package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
)

var errMessage = errors.New("read request: not a message of HTTP/1.1")

// readRequest parses a message of the host. The message is complete, and the host has decoded its
// transfer encoding. So readRequest does a fraction of the work of http.ReadRequest, which takes
// three times as long.
func readRequest(message []byte, x *exchange) (*http.Request, error) {
	head, content, ok := cutHead(message)
	if !ok {
		return nil, errMessage
	}
	line, fields := cutLine(x.text(head))
	method, rest, _ := strings.Cut(line, " ")
	target, version, ok := strings.Cut(rest, " ")
	if !ok || method == "" || !strings.HasPrefix(version, "HTTP/1.") {
		return nil, errMessage
	}
	address, err := parseTarget(target, &x.url)
	if err != nil {
		return nil, errors.Join(errMessage, err)
	}
	h, err := readHeader(fields, x)
	if err != nil {
		return nil, err
	}
	r := &x.request
	r.Method, r.URL, r.RequestURI, r.Header, r.Host = method, address, target, h.fields, h.host
	r.Proto, r.ProtoMajor, r.ProtoMinor = "HTTP/1.1", 1, 1
	r.Body, r.ContentLength = http.NoBody, int64(len(content))
	if len(content) > 0 {
		r.Body = x.reader(content)
	}
	if h.framed {
		streamBody(r, content)
	}
	readTrailers(r, h.trailed)
	return r, nil
}

// parseTarget is url.ParseRequestURI, with u as the memory of the result. Most targets are a path,
// and perhaps a query, without escapes.
func parseTarget(target string, u *url.URL) (*url.URL, error) {
	path, query, _ := strings.Cut(target, "?")
	if !isPlainPath(path) || !isPlainQuery(query) || strings.HasSuffix(target, "?") {
		return url.ParseRequestURI(target)
	}
	u.Path, u.RawQuery = path, query
	return u, nil
}

// isPlainPath reports whether a path needs no decoding: it is absolute, does not begin with an
// authority, and has only characters that need no escape.
func isPlainPath(path string) bool {
	if len(path) == 0 || path[0] != '/' || strings.HasPrefix(path, "//") {
		return false
	}
	for i := range len(path) {
		switch c := path[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '/', c == '-', c == '_', c == '.', c == '~':
		default:
			return false
		}
	}
	return true
}

// isPlainQuery reports whether a query has printable ASCII only. Its parts are parsed on demand.
func isPlainQuery(query string) bool {
	for i := range len(query) {
		if c := query[i]; c <= ' ' || c >= 0x7f || c == '#' {
			return false
		}
	}
	return true
}

// streamBody sets the body to the rest of the request if the message does not have all of it: if
// the head announces more bytes than were passed, or chunks, which the host has decoded.
func streamBody(r *http.Request, content []byte) {
	announced, err := strconv.ParseInt(r.Header.Get("Content-Length"), 10, 64)
	switch {
	case len(r.Header["Transfer-Encoding"]) > 0:
		delete(r.Header, "Transfer-Encoding")
		r.TransferEncoding, r.ContentLength = []string{"chunked"}, -1
	case err != nil || announced <= int64(len(content)):
		return
	default:
		r.ContentLength = announced
	}
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(content), remainder{}))
}

// remainder reads the part of the request after the message.
type remainder struct{}

// Read implements io.Reader.
func (remainder) Read(b []byte) (int, error) { return guest.ReadMore(b) }

// body is a request's content as an io.ReadCloser.
type body struct{ bytes.Reader }

func (*body) Close() error { return nil }

// cutHead splits a message at the first empty line into head and body. It searches for line ends
// only: a search for "\r\n\r\n" takes several times as long in WebAssembly.
func cutHead(message []byte) (head, content []byte, ok bool) {
	for at := 0; ; {
		length := bytes.IndexByte(message[at:], '\n')
		if length < 0 {
			return message, nil, false
		}
		if length == 0 || length == 1 && message[at] == '\r' {
			return message[:at], message[at+length+1:], true
		}
		at += length + 1
	}
}

func cutLine(text string) (line, rest string) {
	line, rest, _ = strings.Cut(text, "\n")
	return strings.TrimSuffix(line, "\r"), rest
}

// header is the header of a request.
type header struct {
	fields http.Header // without Host
	host   string
	framed bool // it has a Content-Length or a Transfer-Encoding
	// trailed says that it has a Trailer.
	trailed bool
}

func readHeader(text string, x *exchange) (h header, err error) {
	fields, values := x.fields, x.values[:0]
	for text != "" {
		var line string
		line, text = cutLine(text)
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return h, errMessage
		}
		name, value = textproto.CanonicalMIMEHeaderKey(name), trimBlanks(value)
		switch name {
		case "Host":
			if h.host == "" {
				h.host = value
			}
			continue
		case "Content-Length", "Transfer-Encoding":
			h.framed = true
		case "Trailer":
			h.trailed = true
		}
		if before := fields[name]; before != nil {
			fields[name] = append(before, value)
			continue
		}
		values = append(values, value)
		fields[name] = values[len(values)-1 : len(values) : len(values)]
	}
	h.fields = fields
	return h, nil
}

// trimBlanks returns a field's value without the white space around it.
func trimBlanks(s string) string {
	for len(s) > 0 && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for len(s) > 0 && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// setPath sets the request's path values from the route's parameters.
func setPath(r *http.Request) {
	route, ok := guest.Meta("route")
	if !ok {
		return
	}
	r.Pattern = route
	for {
		_, rest, found := strings.Cut(route, "{")
		name, after, closed := strings.Cut(rest, "}")
		if !found || !closed {
			return
		}
		name, route = strings.TrimSuffix(name, "..."), after
		if value, ok := guest.Meta(name); ok {
			r.SetPathValue(name, value)
		}
	}
}
