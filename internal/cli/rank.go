package cli

import (
	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard/internal/train/launch"
)

// newRankCommand returns the command that confines its process and becomes a rank of a training
// job.
func newRankCommand() *cobra.Command {
	var c launch.Confinement
	cmd := &cobra.Command{
		Use: "rank -- PROGRAM [ARGS...]", Short: "Confine this process and run a program in its place", Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error { return launch.Confine(c, args) },
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Dir, "dir", "", "folder that the program may write to")
	flags.StringVar(&c.Files, "files", "", "folder in it at which relative paths begin")
	flags.StringArrayVar(&c.Readable, "readable", nil, "path that the program may read beside the system's")
	flags.BoolVar(&c.OwnUser, "own-user", false, "the program has a user of its own")
	flags.SetInterspersed(false)
	return cmd
}
