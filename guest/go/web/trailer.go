package web

import (
	"bytes"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"
)

// trailerNames returns the names in the header Trailer.
func trailerNames(h http.Header) []string {
	var names []string
	for _, list := range h["Trailer"] {
		for name := range strings.SplitSeq(list, ",") {
			names = append(names, textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name)))
		}
	}
	return names
}

// withNames returns a copy of the set with the names.
func withNames(set map[string]bool, names []string) map[string]bool {
	set = maps.Clone(set)
	for _, name := range names {
		set[name] = true
	}
	return set
}

// trailer returns the trailer fields of the response, as net/http finds them: those that the header
// Trailer has announced, and those whose names begin with http.TrailerPrefix.
func (w *response) trailer() http.Header {
	var trailer http.Header // most responses have none
	add := func(name string, values []string) {
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer[name] = values
	}
	for _, name := range w.trailers {
		if values := w.header[name]; values != nil && !ours[name] {
			add(name, values)
		}
	}
	for key, values := range w.header {
		if name, ok := strings.CutPrefix(key, http.TrailerPrefix); ok {
			add(textproto.CanonicalMIMEHeaderKey(name), values)
		}
	}
	return trailer
}

// chunked frames a body as one chunk, with the trailer behind it.
func chunked(body []byte, trailer http.Header) []byte {
	var b bytes.Buffer
	if len(body) > 0 {
		b.WriteString(strconv.FormatInt(int64(len(body)), 16) + "\r\n")
		b.Write(body)
		b.WriteString("\r\n")
	}
	b.WriteString("0\r\n")
	_ = trailer.Write(&b) // a buffer returns no error
	b.WriteString("\r\n")
	return b.Bytes()
}
