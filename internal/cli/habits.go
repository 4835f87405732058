package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// acceptHabits lets users of other tools write what they are used to: a list's noun in the singular
// (`outboard node`), and `list` below it (`outboard nodes list`). Neither is in the help.
func acceptHabits(nouns ...*cobra.Command) {
	for _, cmd := range nouns {
		if !strings.HasPrefix(cmd.Short, "List ") {
			continue
		}
		cmd.Aliases = append(cmd.Aliases, singular(cmd.Name()))
		list := &cobra.Command{
			Use: "list", Short: cmd.Short, Hidden: true, Example: "  outboard " + cmd.Name() + " list", Args: noArgs, RunE: cmd.RunE,
		}
		list.Flags().AddFlagSet(cmd.Flags())
		cmd.AddCommand(list)
	}
}

func singular(plural string) string {
	if stem, ok := strings.CutSuffix(plural, "ies"); ok {
		return stem + "y"
	}
	return strings.TrimSuffix(plural, "s")
}
