package core

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// Below reports whether the path is that of the task or of a task within it. All paths
// are below "".
func Below(path, of string) bool {
	if of == "" || path == of {
		return true
	}
	return strings.HasPrefix(path, of) && strings.IndexByte("/[#!", path[len(of)]) >= 0
}

// visited returns the path element of a name's nth visit.
func visited(name string, n int) string {
	if n < 2 {
		return name
	}
	return name + "@" + strconv.Itoa(n)
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "/" + name
}

func round(path string, i int) string { return path + "[" + strconv.Itoa(i) + "]" }

func attempt(path string, n int) string {
	if n < 2 {
		return path
	}
	return path + "#" + strconv.Itoa(n)
}

func catching(path string) string { return path + "!" }

const (
	// maxPlainKey is the length in bytes above which a digest replaces the end of an idempotency
	// key.
	maxPlainKey = 200
	keyPrefix   = 100
)

// IdempotencyKey returns a step's idempotency key in a syntax that is valid wherever a function may
// store it: keys of buckets (NATS), file names, headers. It has at most 200 letters, digits, "-",
// "_", "/" and "=", and is unique among the steps of all executions. Other bytes of the execution's
// name and of the path are written as "=" and two hexadecimal digits; a key that would be longer
// ends with a SHA-256 digest.
func IdempotencyKey(execution, path string) string {
	key := escapeKey(execution) + "/" + escapeKey(path)
	if len(key) <= maxPlainKey {
		return key
	}
	sum := sha256.Sum256([]byte(key))
	return key[:keyPrefix] + "==" + hex.EncodeToString(sum[:])
}

func escapeKey(text string) string {
	const digits = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == '_', c == '/':
			b.WriteByte(c)
		default:
			b.Write([]byte{'=', digits[c>>4], digits[c&15]})
		}
	}
	return b.String()
}
