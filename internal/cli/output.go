package cli

import (
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

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
		encoder := json.NewEncoder(env.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(value)
	}
	table := tabwriter.NewWriter(env.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, strings.Join(titles, "\t"))
	for _, row := range rows {
		fmt.Fprintln(table, strings.Join(row, "\t"))
	}
	return table.Flush()
}

// orDash shows an empty cell.
func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
