package gateway

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Bounds of the trailers of a request. HTTP/1.1 has a lower one: net/http takes no more than 4 KiB.
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

// trailerNames are the names of a request's trailers, sorted: while its body is not read to its
// end, those that its head announces.
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

// trailerMeta is the meta `trailers`, the names of the trailers that came, and `trailer.NAME`, the
// value of one. Functions have them once they have read the whole body.
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
