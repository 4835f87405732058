package calls

import "strings"

const (
	// keptWords is how many of the last lines say why a process has ended.
	keptWords = 3
	// longestWord is how much of each.
	longestWord = 300
)

// lastWords are the last lines that a process wrote. Of a Go program that crashed the
// first line says why, and the last ones where.
type lastWords struct {
	crash string
	lines []string
}

func (w *lastWords) add(line string) {
	if len(line) > longestWord {
		line = strings.ToValidUTF8(line[:longestWord], "") + "..."
	}
	w.lines = append(w.lines, line)
	w.lines = w.lines[max(0, len(w.lines)-keptWords):]
}

// addOther adds a line that is no record.
func (w *lastWords) addOther(line string) {
	if w.crash == "" && (strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ")) {
		w.crash = line
	}
	w.add(line)
}

func (w *lastWords) String() string {
	switch {
	case w.crash != "":
		return w.crash
	case len(w.lines) == 0:
		return ""
	}
	return "its log ends with: " + strings.Join(w.lines, " | ")
}
