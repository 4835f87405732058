package web

import (
	"net/http"
	"strings"
)

// sniffed is the number of bytes that http.DetectContentType examines.
const sniffed = 512

// detectType is http.DetectContentType, which compares a body with some thirty signatures. Most
// bodies are text, and begin with a character with which no signature begins.
func detectType(body []byte) string {
	if len(body) == 0 || !isPlainText(body[:min(len(body), sniffed)]) {
		return http.DetectContentType(body)
	}
	return "text/plain; charset=utf-8"
}

// isPlainText reports whether b is printable ASCII and matches no signature.
func isPlainText(b []byte) bool {
	if strings.IndexByte("%.<BFGMOPRotw", b[0]) >= 0 || b[0] <= ' ' {
		return false
	}
	if len(b) >= 8 && string(b[4:8]) == "ftyp" || len(b) >= 36 && string(b[34:36]) == "LP" {
		return false // MPEG-4, and an embedded font
	}
	for _, c := range b {
		if c < ' ' && c != '\n' && c != '\t' && c != '\r' || c >= 0x7f {
			return false
		}
	}
	return true
}
