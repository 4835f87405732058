package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/pflag"
)

// format is the value of -o.
type format string

func (f *format) String() string { return string(*f) }
func (f *format) Type() string   { return "format" }

func (f *format) Set(s string) error {
	if s != "json" && s != "text" {
		return fmt.Errorf("want json or text")
	}
	*f = format(s)
	return nil
}

func (f *format) addFlag(flags *pflag.FlagSet) {
	*f = "text"
	flags.VarP(f, "output", "o", "json or text")
}

// print writes value as JSON, or the rows below their titles.
func (f *format) print(env *Env, value any, titles []string, rows [][]string) error {
	if *f == "json" {
		encoder := newJSONEncoder(env.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	return writeTable(env.Stdout, "", titles, rows)
}

// writeTable writes rows below their titles, each line after an indent. The command line writes
// tables only here: it makes names that other machines and programs chose safe for a terminal.
func writeTable(w io.Writer, indent string, titles []string, rows [][]string) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, indent+joinCells(titles))
	for _, row := range rows {
		fmt.Fprintln(table, indent+joinCells(row))
	}
	return table.Flush()
}

func joinCells(row []string) string {
	cells := make([]string, len(row))
	for i, cell := range row {
		cells[i] = clean(cell)
	}
	return strings.Join(cells, "\t")
}

// clean replaces the characters of a text that control a terminal or reorder the text around them:
// controls, bidirectional formatting and invalid UTF-8 become U+FFFD.
func clean(text string) string {
	if !strings.ContainsFunc(text, unprintable) && utf8.ValidString(text) {
		return text
	}
	return strings.Map(func(r rune) rune {
		if unprintable(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

func unprintable(r rune) bool {
	return unicode.In(r, unicode.Cc, unicode.Bidi_Control, unicode.Zl, unicode.Zp)
}

// printSafe is writeSafe for messages: if the terminal fails, the error can't be reported
// elsewhere.
func printSafe(w io.Writer, format string, args ...any) { _ = writeSafe(w, format, args...) }

// writeSafe formats a text with names or messages of other machines, cleans it, and writes it with
// its lines and tabs.
func writeSafe(w io.Writer, format string, args ...any) error {
	lines := strings.SplitAfter(fmt.Sprintf(format, args...), "\n")
	for i, line := range lines {
		text, ended := strings.CutSuffix(line, "\n")
		cells := strings.Split(text, "\t")
		for j, cell := range cells {
			cells[j] = clean(cell)
		}
		lines[i] = strings.Join(cells, "\t")
		if ended {
			lines[i] += "\n"
		}
	}
	_, err := io.WriteString(w, strings.Join(lines, ""))
	return err
}

// orDash returns "-" for an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
