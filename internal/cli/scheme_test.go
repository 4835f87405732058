package cli

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// The scheme of docs/design/0009-commands.md.
var (
	// listCommands are the plural nouns: each lists, and has its verbs below it.
	listCommands = []string{
		"apps", "calls", "datasets", "devices", "endpoints", "executions", "functions", "jobs", "keys", "leases", "models", "modules", "nodes", "policies", "services", "sessions", "workflows",
	}
	// topVerbs are the verbs that are frequent enough to stand alone; the others stand below a noun.
	topVerbs = []string{"calibrate", "chat", "deploy", "down", "infer", "invoke", "logs", "network", "new", "plan", "publish", "run", "status", "token", "trace", "train", "up", "upgrade", "version", "config"}
	// verbs are those below a noun. One verb means the same below every noun.
	verbs = []string{"add", "apply", "cancel", "check", "collect", "create", "export", "kill", "pull", "push", "remove", "resume", "revoke", "rollback", "rollout", "show", "start", "train"}
	// placeholder is an argument in a usage line.
	placeholder = regexp.MustCompile(`\b[A-Z]{2,}`)
)

func TestCommandScheme(t *testing.T) {
	root := newRootCommand(&Env{})
	for _, cmd := range root.Commands() {
		switch {
		case cmd.Hidden || !cmd.Runnable():
			continue
		case cmd.GroupID == "":
			t.Errorf("%s is in no group of the help", cmd.Name())
		case !slices.Contains(listCommands, cmd.Name()) && !slices.Contains(topVerbs, cmd.Name()):
			t.Errorf("%s is neither a plural noun nor one of the top-level verbs", cmd.Name())
		case slices.Contains(listCommands, cmd.Name()) && !strings.HasPrefix(cmd.Short, "List "):
			t.Errorf("%s is a plural noun, and its help does not begin with List: %s", cmd.Name(), cmd.Short)
		}
		checkCommand(t, cmd)
		for _, sub := range cmd.Commands() {
			if !sub.Hidden && !slices.Contains(verbs, sub.Name()) {
				t.Errorf("%s: %s is not one of the verbs", sub.CommandPath(), sub.Name())
			}
			checkCommand(t, sub)
		}
	}
}

// checkCommand checks what holds for every command that users see.
func checkCommand(t *testing.T, cmd *cobra.Command) {
	t.Helper()
	path := cmd.CommandPath()
	if !strings.Contains(cmd.Example, path) {
		t.Errorf("%s: its help has no example", path)
	}
	for line := range strings.Lines(cmd.Example) {
		if !strings.HasPrefix(line, "  ") {
			t.Errorf("%s: the example %q is not indented", path, line)
		}
	}
	if strings.HasSuffix(cmd.Short, ".") || cmd.Short == "" {
		t.Errorf("%s: its short help is %q: want a sentence without a full stop", path, cmd.Short)
	}
	reads := strings.HasPrefix(cmd.Short, "List ") || strings.HasPrefix(cmd.Short, "Show ")
	if flag := cmd.Flags().Lookup("output"); reads && (flag == nil || flag.Shorthand != "o") {
		t.Errorf("%s reads, and has no -o json", path)
	}
	arguments := strings.TrimPrefix(strings.ReplaceAll(cmd.Use, "[flags]", ""), cmd.Name())
	if placeholder.MatchString(arguments) && cmd.ValidArgsFunction == nil && !slices.Contains([]string{"run", "train"}, cmd.Name()) {
		t.Errorf("%s takes arguments, and does not complete them", path)
	}
	for line := range strings.Lines(cmd.Long) {
		if len([]rune(line)) > 100 {
			t.Errorf("%s: a line of its help is longer than 100 columns: %s", path, line)
		}
	}
}
