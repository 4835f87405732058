package web

import "strings"

// lengths has the lengths of the parts of a message's head, in their order: for the request line and
// then for each field, one byte with the length of the method or name, and two bytes, the higher
// first, with that of the target or value. The gateway appends it to the metadata `http.route` of a
// message whose names are canonical and whose lines end with "\r\n". With them a request of six
// fields takes an eighth less fuel.
type lengths string

// removeFirst removes the first pair of lengths and returns it.
func (l *lengths) removeFirst() (name, value int) {
	s := *l
	*l = s[3:]
	return int(s[0]), int(s[1])<<8 | int(s[2])
}

// cutRequestLine splits a head behind its request line.
func (l *lengths) cutRequestLine(text string) (method, target, rest string, ok bool) {
	if len(*l) >= 3 {
		m, t := l.removeFirst()
		method, text = text[:m], text[m+len(" "):]
		return method, text[:t], text[t+len(" HTTP/1.1\r\n"):], true
	}
	line, rest := cutLine(text)
	method, line, _ = strings.Cut(line, " ")
	target, version, ok := strings.Cut(line, " ")
	return method, target, rest, ok && method != "" && strings.HasPrefix(version, "HTTP/1.")
}

// cutField splits the fields of a head behind the first. The name is canonical, and "" for the empty
// line after the last field.
func (l *lengths) cutField(text string) (name, value, rest string, ok bool) {
	if len(*l) >= 3 {
		n, v := l.removeFirst()
		name, text = text[:n], text[n+len(": "):]
		return name, trimBlanks(text[:v]), text[v+len("\r\n"):], true
	}
	line, rest := cutLine(text)
	if line == "" {
		return "", "", rest, text != ""
	}
	name, value, ok = strings.Cut(line, ":")
	return canonical(name), trimBlanks(value), rest, ok && name != ""
}
