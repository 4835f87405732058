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
//
// The lengths of the head's parts make the search for their ends unnecessary; they may be empty.
func readRequest(message []byte, parts lengths, x *exchange) (*http.Request, error) {
	text, content := message, []byte(nil)
	if len(message) > len(x.head) {
		text, content = cutHead(message)
	}
	method, target, fields, ok := parts.cutRequestLine(x.text(text))
	if !ok {
		return nil, errMessage
	}
	address, err := parseTarget(target, &x.url)
	if err != nil {
		return nil, errors.Join(errMessage, err)
	}
	h, rest, err := readHeader(fields, parts, x)
	if err != nil {
		return nil, err
	}
	if len(content) == 0 {
		content = text[len(text)-len(rest):]
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
	path, query := cutAt(target, '?')
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
	var announced int64
	err := errMessage
	if values := r.Header["Content-Length"]; len(values) > 0 {
		announced, err = strconv.ParseInt(values[0], 10, 64)
	}
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

// cutHead splits a message behind its first empty line into head and body. Without an empty line all
// of it is head. It searches for line ends only: a search for "\r\n\r\n" takes several times as long
// in WebAssembly.
func cutHead(message []byte) (head, content []byte) {
	for at := 0; ; {
		length := bytes.IndexByte(message[at:], '\n')
		if length < 0 {
			return message, nil
		}
		end := at + length + 1
		if length == 0 || length == 1 && message[at] == '\r' {
			return message[:end:end], message[end:]
		}
		at = end
	}
}

func cutLine(text string) (line, rest string) {
	line, rest = cutAt(text, '\n')
	return strings.TrimSuffix(line, "\r"), rest
}

// header is the header of a request.
type header struct {
	fields http.Header // without Host
	host   string
	framed bool // it has a Content-Length other than 0, or a Transfer-Encoding
	// trailed says that it has a Trailer.
	trailed bool
}

// readHeader parses the fields up to the empty line, and returns the text behind it.
func readHeader(text string, parts lengths, x *exchange) (h header, rest string, err error) {
	h.fields = x.fields
	values, seen := x.values[:0], uint64(0)
	for {
		name, value, rest, ok := parts.cutField(text)
		if !ok {
			return h, "", errMessage
		}
		if text = rest; name == "" {
			return h, text, nil
		}
		if h.note(name, value) {
			continue
		}
		mark := markOf(name)
		if seen&mark != 0 && h.fields[name] != nil {
			h.fields[name] = append(h.fields[name], value)
			continue
		}
		seen |= mark
		values = append(values, value)
		h.fields[name] = values[len(values)-1 : len(values) : len(values)]
	}
}

// note records a field that is more than a value of the header. It returns true for Host, which is
// no part of it.
func (h *header) note(name, value string) (left bool) {
	switch name {
	case "Host":
		if h.host == "" {
			h.host = value
		}
		return true
	case "Content-Length":
		h.framed = h.framed || value != "0"
	case "Transfer-Encoding":
		h.framed = true
	case "Trailer":
		h.trailed = true
	}
	return false
}

// markOf returns one bit of 64 for a field's name. A name whose bit no earlier name has is the first
// of its kind, which saves a search in the map.
func markOf(name string) uint64 {
	return 1 << ((uint(len(name)) + 7*uint(name[0]) + 13*uint(name[len(name)-1])) & 63)
}

// canonical is textproto.CanonicalMIMEHeaderKey. Most names are canonical and of few kinds; to find
// one of those takes a fraction of the work.
func canonical(name string) string {
	switch name {
	case "Host", "X-Forwarded-Prefix", "Traceparent", "Tracestate", "User-Agent", "Content-Type", "Content-Length",
		"Accept", "Accept-Encoding", "Accept-Language", "Authorization", "Cache-Control", "Cookie", "Origin", "Referer",
		"If-None-Match", "Range", "Transfer-Encoding", "Trailer":
		return name
	}
	return textproto.CanonicalMIMEHeaderKey(name)
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

// setPath sets the request's path values from the route's parameters, each of which the host is
// asked for.
func setPath(r *http.Request) {
	route, ok := guest.Meta("route")
	if !ok {
		return
	}
	r.Pattern = route
	for {
		var name string
		if name, route, ok = cutParameter(route); !ok {
			return
		}
		if value, ok := guest.Meta(name); ok {
			r.SetPathValue(name, value)
		}
	}
}

// setMatch sets the request's path values from the metadata `http.route`: the route, then the values
// of its parameters, and then the lengths of the parts of the message's head, each after a line
// break. It returns the lengths.
func setMatch(r *http.Request, match string) lengths {
	route, rest := cutAt(match, '\n')
	r.Pattern = route
	for {
		name, after, ok := cutParameter(route)
		if !ok {
			return lengths(rest)
		}
		var value string
		value, rest = cutAt(rest, '\n')
		r.SetPathValue(name, value)
		route = after
	}
}

// cutParameter returns the name of a route's first parameter, and the part of the route behind it.
func cutParameter(route string) (name, rest string, ok bool) {
	for {
		_, route = cutAt(route, '{')
		if name, route = cutAt(route, '}'); name == "" {
			return "", "", false
		}
		if name != "$" {
			return strings.TrimSuffix(name, "..."), route, true
		}
	}
}

// cutAt is strings.Cut with a byte as the separator, which saves two calls.
func cutAt(s string, c byte) (before, after string) {
	if at := strings.IndexByte(s, c); at >= 0 {
		return s[:at], s[at+1:]
	}
	return s, ""
}
