package state

import "strings"

const hexDigits = "0123456789ABCDEF"

// tokensOf maps a key onto the tokens of a subject: slashes become dots, so that a prefix can be
// queried, and bytes that a token must not contain are escaped.
func tokensOf(key string) (tokens string, ok bool) {
	var b strings.Builder
	b.Grow(len(key) + 8)
	empty := true
	for i := range len(key) {
		c := key[i]
		switch {
		case c == '/' && empty:
			return "", false
		case c == '/':
			b.WriteByte('.')
		case isWordByte(c):
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hexDigits[c>>4])
			b.WriteByte(hexDigits[c&15])
		}
		empty = c == '/'
	}
	return b.String(), !empty
}

// keyOf is the inverse of tokensOf.
func keyOf(tokens string) string {
	var b strings.Builder
	b.Grow(len(tokens))
	for i := 0; i < len(tokens); i++ {
		c := tokens[i]
		switch {
		case c == '.':
			b.WriteByte('/')
		case c == '%' && i+2 < len(tokens):
			hi, lo := strings.IndexByte(hexDigits, tokens[i+1]), strings.IndexByte(hexDigits, tokens[i+2])
			b.WriteByte(byte(hi<<4 | lo))
			i += 2
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func isWordByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_'
}

func isWord(name string) bool {
	for i := range len(name) {
		if !isWordByte(name[i]) {
			return false
		}
	}
	return name != ""
}
