package core

import (
	"strconv"
	"strings"
)

// Below reports whether the path is that of a task or of one within it. All
// paths are below "".
func Below(path, of string) bool {
	if of == "" || path == of {
		return true
	}
	return strings.HasPrefix(path, of) && strings.IndexByte("/[#!", path[len(of)]) >= 0
}

// visited is a name on its nth visit.
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
