package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Bounds of the trailers of a request. For HTTP/1.1 the bound is lower: net/http accepts 4 KiB at
// most.
const (
	maxTrailers     = 64
	maxTrailerBytes = 8 << 10
)

// checkTrailers refuses too many or too large trailers of a request whose body was read.
func checkTrailers(r *http.Request) error {
	count, size := 0, 0
	for name, values := range r.Trailer {
		for _, value := range values {
			count++
			size += len(name) + len(": ") + len(value) + len("\r\n")
		}
	}
	if count > maxTrailers || size > maxTrailerBytes {
		return &bodyError{http.StatusRequestHeaderFieldsTooLarge, fmt.Sprintf("%d trailers of %d bytes follow the body: the gateway takes %d of %d bytes", count, size, maxTrailers, maxTrailerBytes)}
	}
	return nil
}

// trailerNames returns the sorted names of a request's trailers: the announced names until the body
// is read to its end.
func trailerNames(r *http.Request) []string {
	if len(r.Trailer) == 0 {
		return nil
	}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(r.Trailer)), func(name string) bool {
		return headerOnly(name) || !isTokenText(name)
	})
}

// appendTrailerNames appends the header field that announces a request's trailers.
func appendTrailerNames(b []byte, r *http.Request) []byte {
	names := trailerNames(r)
	if len(names) == 0 {
		return b
	}
	return append(append(append(b, "Trailer: "...), strings.Join(names, ", ")...), "\r\n"...)
}

// trailerMeta returns the metadata `trailers`, the names of the received trailers, and
// `trailer.NAME`, a trailer's value. They are available to functions once the whole body is read.
func trailerMeta(r *http.Request, name string) (value string, isTrailer, ok bool) {
	if name == "trailers" {
		names := slices.DeleteFunc(trailerNames(r), func(name string) bool { return r.Trailer[name] == nil })
		return strings.Join(names, ", "), true, len(names) > 0
	}
	field, isTrailer := strings.CutPrefix(name, "trailer.")
	if !isTrailer {
		return "", false, false
	}
	field = http.CanonicalHeaderKey(field)
	if values := r.Trailer[field]; values != nil && slices.Contains(trailerNames(r), field) {
		return strings.Join(values, ", "), true, true
	}
	return "", true, false
}
