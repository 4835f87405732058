package web

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"strconv"
	"strings"

	guest "github.com/outboard-run/outboard/guest/go"
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

// trailer returns the trailer fields of the response by the rules of net/http: the fields that the
// header Trailer announces, and those whose names begin with http.TrailerPrefix.
func (w *response) trailer() http.Header {
	if len(w.header) == 0 {
		return nil // most responses
	}
	var trailer http.Header
	add := func(name string, values []string) {
		if trailer == nil {
			trailer = http.Header{}
		}
		trailer[name] = values
	}
	for _, name := range w.trailers {
		if values := w.header[name]; values != nil && !framingFields[name] {
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

// chunked frames a body as one chunk, followed by the trailer.
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

// readTrailers sets the request's trailers by the rules of net/http: announced ones are keys from
// the start, and all have their values once the body has been read to its end.
func readTrailers(r *http.Request, announced bool) {
	if !announced && r.TransferEncoding == nil {
		return // most requests
	}
	if announced {
		r.Trailer = http.Header{}
		for _, name := range trailerNames(r.Header) {
			r.Trailer[name] = nil
		}
		delete(r.Header, "Trailer")
	}
	r.Body = &trailedBody{body: r.Body, request: r}
}

// trailedBody is a body that trailers may follow.
type trailedBody struct {
	body    io.ReadCloser
	request *http.Request
	ended   bool
}

// Read implements io.Reader.
func (b *trailedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	if errors.Is(err, io.EOF) && !b.ended {
		b.ended = true
		setTrailers(b.request)
	}
	return n, err
}

// Close implements io.Closer.
func (b *trailedBody) Close() error { return b.body.Close() }

// setTrailers requests the received trailers from the host.
func setTrailers(r *http.Request) {
	names, ok := guest.Meta("trailers")
	if !ok {
		return
	}
	if r.Trailer == nil {
		r.Trailer = http.Header{}
	}
	for name := range strings.SplitSeq(names, ", ") {
		if value, ok := guest.Meta("trailer." + name); ok {
			r.Trailer[name] = []string{value}
		}
	}
}
