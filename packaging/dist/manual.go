package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manual returns the manual pages of a command and all commands below it, by file name, in the man
// macros of groff_man(7).
func manual(root *cobra.Command, version string, date time.Time) map[string]string {
	pages := map[string]string{}
	var add func(cmd *cobra.Command)
	add = func(cmd *cobra.Command) {
		if cmd.Hidden {
			return
		}
		name := strings.ReplaceAll(cmd.CommandPath(), " ", "-")
		pages[name+".1"] = page(cmd, name, version, date)
		for _, sub := range cmd.Commands() {
			add(sub)
		}
	}
	add(root)
	return pages
}

func page(cmd *cobra.Command, name, version string, date time.Time) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 %s %s %s\n", quote(strings.ToUpper(name)), quote(date.Format(time.DateOnly)), quote("Outboard "+version), quote("Outboard manual"))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", escape(name), escape(cmd.Short))
	if cmd.Runnable() {
		fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", escape(cmd.UseLine()))
	}
	description := cmd.Long
	if description == "" {
		description = cmd.Short + "."
	}
	b.WriteString(".SH DESCRIPTION\n" + paragraphs(description))
	writeSubcommands(&b, cmd)
	writeFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	writeFlags(&b, "COMMON OPTIONS", cmd.InheritedFlags())
	if cmd.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", escape(cmd.Example))
	}
	b.WriteString(".SH SEE ALSO\n" + strings.Join(related(cmd), ",\n") + "\n")
	return b.String()
}

// paragraphs converts blank lines to paragraph breaks, and keeps indented paragraphs unchanged.
func paragraphs(text string) string {
	var b strings.Builder
	for i, p := range strings.Split(strings.TrimSpace(text), "\n\n") {
		if i > 0 {
			b.WriteString(".PP\n")
		}
		if strings.HasPrefix(p, " ") {
			fmt.Fprintf(&b, ".nf\n%s\n.fi\n", escape(p))
		} else {
			fmt.Fprintf(&b, "%s\n", escape(p))
		}
	}
	return b.String()
}

func writeSubcommands(b *strings.Builder, cmd *cobra.Command) {
	first := true
	for _, sub := range cmd.Commands() {
		if sub.Hidden || sub.IsAdditionalHelpTopicCommand() {
			continue
		}
		if first {
			b.WriteString(".SH COMMANDS\n")
			first = false
		}
		fmt.Fprintf(b, ".TP\n.B %s\n%s\n", escape(sub.Name()), escape(sub.Short))
	}
}

func writeFlags(b *strings.Builder, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString(".SH " + title + "\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		value, usage := pflag.UnquoteUsage(f)
		name := "--" + f.Name
		if f.Shorthand != "" {
			name = "-" + f.Shorthand + ", " + name
		}
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.Name != "data" {
			usage += " (default " + f.DefValue + ")"
		}
		fmt.Fprintf(b, ".TP\n\\fB%s\\fR", escape(name))
		if value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", escape(value))
		}
		fmt.Fprintf(b, "\n%s\n", escape(usage))
	})
}

// related returns references to the pages of the parent and the subcommands of a command.
func related(cmd *cobra.Command) []string {
	var all []string
	if cmd.HasParent() {
		all = append(all, cmd.Parent().CommandPath())
	}
	for _, sub := range cmd.Commands() {
		if !sub.Hidden {
			all = append(all, sub.CommandPath())
		}
	}
	slices.Sort(all)
	for i, path := range all {
		all[i] = ".BR " + escape(strings.ReplaceAll(path, " ", "-")) + " (1)"
	}
	return all
}

// escape escapes text for roff: backslashes, hyphens, and lines that begin with a control
// character.
func escape(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "`", "").Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

func quote(text string) string { return `"` + strings.ReplaceAll(text, `"`, `""`) + `"` }
