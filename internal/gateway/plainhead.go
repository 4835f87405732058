package gateway

import (
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// Limits of a plain request; larger ones are left to net/http.
const (
	maxPlainHead   = 8 << 10
	maxPlainFields = 64
	maxPlainBody   = 64 << 10
)

// plainHead is the head of a plain request: of a strict, unambiguous subset of HTTP/1.1, without
// fields that change the treatment of the connection or the body. FuzzPlainHead compares it with
// net/http.
type plainHead struct {
	method, target, host string
	length               int // of the body, -1 without Content-Length
	url                  url.URL
	header               http.Header
	values               []string // of header
}

// parse parses a head without its last, empty line. It returns false if the request is not plain.
func (h *plainHead) parse(text string) bool {
	clear(h.header)
	h.host, h.length, h.values = "", -1, h.values[:0]
	if h.header == nil {
		h.header, h.values = make(http.Header), make([]string, 0, maxPlainFields)
	}
	line, rest, ok := cutPlainLine(text)
	if !ok || !h.parseLine(line) {
		return false
	}
	for rest != "" {
		if line, rest, ok = cutPlainLine(rest); !ok || !h.parseField(line) {
			return false
		}
	}
	return h.host != ""
}

func cutPlainLine(text string) (line, rest string, ok bool) {
	end := strings.IndexByte(text, '\n')
	if end < 1 || text[end-1] != '\r' {
		return "", "", false
	}
	return text[:end-1], text[end+1:], true
}

// parseLine reads the request's line.
func (h *plainHead) parseLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, ok := strings.CutSuffix(rest, " HTTP/1.1")
	if !ok || !plainMethod(method) {
		return false
	}
	h.method, h.target = method, target
	return h.parseTarget(target)
}

func plainMethod(m string) bool {
	switch m {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions:
		return true
	}
	return false
}

// Classes of the bytes of a head.
const (
	inPath  = 1 << iota // of a target's path, unescaped
	inQuery             // of a target after the end of the path
	inValue             // of a header's value
	inHost
)

// plainBytes has the classes of each byte.
var plainBytes = makePlainBytes()

func makePlainBytes() (table [256]byte) {
	for c := range table {
		b := byte(c)
		if b >= ' ' && b != 0x7f || b == '\t' {
			table[c] |= inValue
		}
		if b > ' ' && b < 0x7f && b != '#' {
			table[c] |= inQuery
		}
		if isAlphanumeric(b) || strings.IndexByte("-_.~$&+,/:;=@", b) >= 0 {
			table[c] |= inPath
		}
		if isAlphanumeric(b) || strings.IndexByte("-_.:[]", b) >= 0 {
			table[c] |= inHost
		}
	}
	return table
}

func allIn(text string, class byte) bool {
	for i := range len(text) {
		if plainBytes[text[i]]&class == 0 {
			return false
		}
	}
	return true
}

// parseTarget parses a path and its query. A path with escapes is parsed by net/url.
func (h *plainHead) parseTarget(target string) bool {
	if !strings.HasPrefix(target, "/") || strings.HasPrefix(target, "//") || !allIn(target, inQuery) {
		return false
	}
	path, query, hasQuery := strings.Cut(target, "?")
	if allIn(path, inPath) && (query != "" || !hasQuery) {
		h.url = url.URL{Path: path, RawQuery: query}
		return true
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}
	h.url = *u
	return true
}

func (h *plainHead) parseField(line string) bool {
	colon := strings.IndexByte(line, ':')
	if colon <= 0 || !isTokenText(line[:colon]) {
		return false
	}
	value := trimBlanks(line[colon+1:])
	if !allIn(value, inValue) {
		return false
	}
	name := textproto.CanonicalMIMEHeaderKey(line[:colon])
	if name == "Host" {
		ok := h.host == "" && value != "" && allIn(value, inHost)
		h.host = value
		return ok
	}
	return h.noteFraming(name, value) && h.add(name, value)
}

func trimBlanks(s string) string {
	for s != "" && (s[0] == ' ' || s[0] == '\t') {
		s = s[1:]
	}
	for s != "" && (s[len(s)-1] == ' ' || s[len(s)-1] == '\t') {
		s = s[:len(s)-1]
	}
	return s
}

// noteFraming returns false for a header field that a plain request must not have: a field that
// controls the connection or the framing of the body, or that net/http rewrites.
func (h *plainHead) noteFraming(name, value string) bool {
	switch name {
	case "Content-Length":
		return h.length < 0 && h.parseLength(value)
	case "Connection":
		return strings.EqualFold(value, "keep-alive")
	case "Transfer-Encoding", "Trailer", "Expect", "Upgrade", "Http2-Settings", "Proxy-Connection", "Pragma":
		return false
	}
	return true
}

func (h *plainHead) parseLength(digits string) bool {
	if digits == "" || len(digits) > 9 || digits[0] == '0' && len(digits) > 1 {
		return false
	}
	n := 0
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return false
		}
		n = n*10 + int(c-'0')
	}
	h.length = n
	return n <= maxPlainBody
}

func (h *plainHead) add(name, value string) bool {
	n := len(h.values)
	if n == maxPlainFields {
		return false
	}
	h.values = append(h.values, value)
	if known := h.header[name]; known != nil {
		h.header[name] = append(known, value)
	} else {
		h.header[name] = h.values[n : n+1 : n+1]
	}
	return true
}
