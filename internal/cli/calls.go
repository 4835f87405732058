package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
)

type callsOptions struct {
	output  format
	service string
	refresh refresh
}

func newCallsCommand(env *Env) *cobra.Command {
	var opts callsOptions
	cmd := &cobra.Command{
		Use:   "calls",
		Short: "List the methods that this node's programs call, with rates, errors and latencies",
		Long: `List the methods that this node's programs call: calls and errors per second, the latency
that half of them and 99 in 100 do not exceed, the bytes of their messages per second, and
how often each policy acted on them.`,
		Example: `  outboard calls
  outboard calls --service shop.Cart -f
  outboard calls -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return opts.refresh.run(cmd.Context(), func() error { return showCalls(cmd.Context(), env, opts) })
		},
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().StringVar(&opts.service, "service", "", "only methods of `SERVICE`")
	opts.refresh.addFlags(cmd)
	complete(cmd, "output", completeFormat)
	complete(cmd, "service", env.completeService)
	return cmd
}

func showCalls(ctx context.Context, env *Env, opts callsOptions) error {
	calls, err := env.client().Calls(ctx)
	if err != nil {
		return err
	}
	calls = slices.DeleteFunc(calls, func(c client.Calls) bool {
		return c.Service != opts.service && (opts.service != "" || isSystemService(c.Service))
	})
	var rows [][]string
	for _, c := range calls {
		rows = append(rows, []string{
			c.Service, c.Method, perSecond(c.Rate), perSecond(c.Errors), short(c.P50), short(c.P99),
			outboard.Bytes(c.Sent).String() + "/s", outboard.Bytes(c.Received).String() + "/s",
			strconv.FormatInt(c.InFlight, 10), strconv.FormatUint(c.Total, 10), orDash(actedText(c.Acted)),
		})
	}
	opts.refresh.clearPage(env, opts.output)
	titles := []string{"SERVICE", "METHOD", "CALLS/s", "ERRORS/s", "P50", "P99", "SENT", "RECEIVED", "IN FLIGHT", "TOTAL", "POLICIES"}
	return opts.output.print(env, calls, titles, rows)
}

func perSecond(rate float64) string { return strconv.FormatFloat(rate, 'f', 1, 64) }

func short(d client.Duration) string {
	if d == 0 {
		return "-"
	}
	return time.Duration(d).Round(time.Microsecond).String()
}

func actedText(acted map[string]uint64) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(acted)) {
		all = append(all, fmt.Sprintf("%s:%d", name, acted[name]))
	}
	return strings.Join(all, " ")
}
