package object

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Signature Version 4, "Authenticating Requests (AWS Signature Version 4)" in the Amazon S3 API
// Reference.

const (
	algorithm   = "AWS4-HMAC-SHA256"
	stampLayout = "20060102T150405Z"
	dayLayout   = "20060102"
)

// Sign adds the signature to a request, whose query must be in canonical form. hash is the SHA-256 of
// its body, in hex.
func (c *Credentials) Sign(r *http.Request, hash, region string, now time.Time) {
	r.Header.Set("X-Amz-Content-Sha256", hash)
	if c.Key == "" {
		return
	}
	stamp := now.UTC().Format(stampLayout)
	r.Header.Set("X-Amz-Date", stamp)
	if c.Token != "" {
		r.Header.Set("X-Amz-Security-Token", c.Token)
	}
	names, headers := canonicalHeaders(r)
	canonical := strings.Join([]string{r.Method, escapePath(r.URL.Path), r.URL.RawQuery, headers, names, hash}, "\n")
	scope := strings.Join([]string{now.UTC().Format(dayLayout), region, "s3", "aws4_request"}, "/")
	toSign := strings.Join([]string{algorithm, stamp, scope, payloadHash([]byte(canonical))}, "\n")
	key := []byte("AWS4" + c.Secret)
	for part := range strings.SplitSeq(scope, "/") {
		key = mac(key, part)
	}
	r.Header.Set("Authorization", fmt.Sprintf("%s Credential=%s/%s,SignedHeaders=%s,Signature=%s",
		algorithm, c.Key, scope, names, hex.EncodeToString(mac(key, toSign))))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

// canonicalHeaders returns the names of the headers that are signed, and their lines.
func canonicalHeaders(r *http.Request) (names, lines string) {
	values := map[string]string{"host": r.URL.Host}
	for name, all := range r.Header {
		values[strings.ToLower(name)] = strings.TrimSpace(all[0])
	}
	var sorted []string
	for name := range values {
		sorted = append(sorted, name)
	}
	slices.Sort(sorted)
	for _, name := range sorted {
		lines += name + ":" + values[name] + "\n"
	}
	return strings.Join(sorted, ";"), lines
}

// escapePath escapes all bytes of a path but slashes and the characters that RFC 3986 calls
// unreserved.
func escapePath(path string) string {
	var b strings.Builder
	for i := range len(path) {
		switch c := path[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', strings.IndexByte("-._~/", c) >= 0:
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}
