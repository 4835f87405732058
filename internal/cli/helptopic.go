package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newHelpCommand replaces cobra's command, which takes a misspelt command for none.
func newHelpCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]",
		Short: "Help about any command",
		Example: `  outboard help run
  outboard help exit-status`,
		RunE: func(cmd *cobra.Command, args []string) error {
			topic, rest, err := cmd.Root().Find(args)
			switch {
			case err != nil:
				return usage("%w; see `%s --help`", err, topic.CommandPath())
			case len(rest) > 0:
				return unknownCommand(topic, rest[0])
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
		ValidArgsFunction: completeCommands,
	}
}

// completeCommands completes the words of a command.
func completeCommands(cmd *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	topic, rest, err := cmd.Root().Find(args)
	if err != nil || len(rest) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var words []string
	for _, below := range topic.Commands() {
		if (below.IsAvailableCommand() || below.IsAdditionalHelpTopicCommand()) && strings.HasPrefix(below.Name(), typed) {
			words = append(words, below.Name()+"\t"+below.Short)
		}
	}
	return words, cobra.ShellCompDirectiveNoFileComp
}
