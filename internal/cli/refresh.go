package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// A refresh shows a list once, or again and again until the command is interrupted.
type refresh struct {
	follow bool
	every  time.Duration
}

// leastRefresh is the least time between two views.
const leastRefresh = 100 * time.Millisecond

func (r *refresh) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&r.follow, "follow", "f", false, "refresh the list until interrupted")
	cmd.Flags().DurationVar(&r.every, "every", 2*time.Second, "`INTERVAL` of -f")
}

// run calls show for each view.
func (r *refresh) run(ctx context.Context, show func() error) error {
	if r.every < leastRefresh {
		return usage("--every %v: want %v or more", r.every, leastRefresh)
	}
	for {
		if err := show(); err != nil || !r.follow {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(r.every):
		}
	}
}

// clearPage removes the last view from a terminal: it moves the cursor home and clears the screen.
func (r *refresh) clearPage(env *Env, output format) {
	if r.follow && output != "json" && env.Terminal {
		fmt.Fprint(env.Stdout, "\x1b[H\x1b[2J")
	}
}
