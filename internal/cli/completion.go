package cli

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

// completionLimit is how long a shell waits for the node when a key is pressed.
const completionLimit = time.Second

// A completionWriter writes what a shell may insert into a command line: lines of a word and, behind
// a tab, its description. Others have chosen the names of services, programs, executions: words that a
// shell would interpret are left out, since shells insert the common beginning of several words as it
// is. Each Write has one line or more.
type completionWriter struct{ io.Writer }

func (w completionWriter) Write(text []byte) (int, error) {
	var safe strings.Builder
	for line := range strings.Lines(string(text)) {
		word, description, described := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !isShellWord(word) {
			continue
		}
		safe.WriteString(word)
		if described {
			safe.WriteString("\t" + clean(strings.ReplaceAll(description, "\t", " ")))
		}
		safe.WriteByte('\n')
	}
	_, err := io.WriteString(w.Writer, safe.String())
	return len(text), err
}

// isShellWord reports whether no shell reads a text as more than one word, or as a command.
func isShellWord(text string) bool {
	return utf8.ValidString(text) && !strings.ContainsFunc(text, func(r rune) bool {
		return unprintable(r) || unicode.IsSpace(r) || strings.ContainsRune("$`\"'\\;&|(){}*?!#", r)
	})
}

// complete registers the completion of a flag's value.
func complete(cmd *cobra.Command, flag string, words cobra.CompletionFunc) {
	if err := cmd.RegisterFlagCompletionFunc(flag, words); err != nil {
		cobra.CompErrorln(err.Error()) // the command does not have the flag: a bug
	}
}

func completeWords(words ...string) cobra.CompletionFunc {
	return cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp)
}

func completeFormat(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
	return []string{"json", "text"}, cobra.ShellCompDirectiveNoFileComp
}

// selectorStarts are the fields of a selector, each with its most frequent operator.
var selectorStarts = []string{
	"api=", "driver~", "memory>=", "name~", "node=", "platform~", "type=", "units>=", "vendor~", "version~",
}

// completeSelector completes the last part of a selector from the pool's devices: their IDs, and
// the values of fields that are compared for equality.
func (env *Env) completeSelector(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := typed[:strings.LastIndexByte(typed, ',')+1]
	var words []string
	for _, word := range selectorWords(env.poolDevices(cmd.Context()), before == "") {
		words = append(words, before+word)
	}
	return matching(words, typed), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

// completeOffer completes --devices: a selector, all, or none.
func (env *Env) completeOffer(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	words, directive := env.completeSelector(cmd, args, typed)
	return append(words, matching([]string{"all", "none"}, typed)...), directive
}

// selectorWords returns the parts that a selector may have; an ID stands alone.
func selectorWords(devices []client.Device, withIDs bool) []string {
	words := slices.Clone(selectorStarts)
	for _, d := range devices {
		words = append(words, "node="+string(d.Node), "type="+string(d.Type), "api="+string(d.API))
		if withIDs {
			words = append(words, string(d.ID))
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// poolDevices returns the devices of the pool, none if no node runs: completion can't show errors.
func (env *Env) poolDevices(ctx context.Context) []client.Device {
	ctx, cancel := context.WithTimeout(ctx, completionLimit)
	defer cancel()
	devices, err := env.client().Devices(ctx, outboard.Selector{})
	if err != nil {
		return nil
	}
	return devices
}

// completeSession completes the id of a session on this node.
func (env *Env) completeSession(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	var words []string
	if sessions, err := env.client().Sessions(ctx); err == nil {
		for _, s := range sessions {
			words = append(words, string(s.ID)+"\t"+orDash(s.Program)+" of "+string(s.Holder))
		}
	}
	return matching(words, typed), cobra.ShellCompDirectiveNoFileComp
}

func matching(words []string, typed string) []string {
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, typed) })
}

// completeService completes the name of a service.
func (env *Env) completeService(cmd *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completionLimit)
	defer cancel()
	services, err := env.client().Services(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for _, s := range services {
		names = append(names, s.Name)
	}
	return matching(names, typed), cobra.ShellCompDirectiveNoFileComp
}
