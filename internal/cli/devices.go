package cli

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard"
)

type devicesOptions struct {
	output format
	device outboard.Selector
}

func (o *devicesOptions) addFlags(flags *pflag.FlagSet) {
	o.output.addFlag(flags)
	flags.Var(&o.device, "device", "only devices that match `SELECTOR`, such as type=gpu,memory>=4GiB")
}

func newDevicesCommand(env *Env) *cobra.Command {
	var opts devicesOptions
	cmd := &cobra.Command{
		Use:   "devices",
		Short: "List the devices of the pool, with their leases",
		Long: `List the devices of the pool, with their leases.

RTT and TO/FROM are the measured round-trip time and bandwidth from this node to the device's,
once there are any: see ` + "`outboard network`" + `.`,
		Example: `  outboard devices
  outboard devices --device 'type=gpu,memory>=4GiB'
  outboard devices -o json`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDevices(cmd.Context(), env, opts) },
	}
	opts.addFlags(cmd.Flags())
	complete(cmd, "device", env.completeSelector)
	complete(cmd, "output", completeFormat)
	return cmd
}

func runDevices(ctx context.Context, env *Env, opts devicesOptions) error {
	devices, err := env.client().Devices(ctx, opts.device)
	if err != nil {
		return err
	}
	links, err := env.client().Nearest(ctx)
	if err != nil {
		return err
	}
	titles := []string{"DEVICE", "TYPE", "MEMORY", "FREE", "UNITS", "LEASED BY", "NAME"}
	if len(links) > 0 {
		titles = slices.Insert(titles, len(titles)-1, "RTT", "TO/FROM")
	}
	var rows [][]string
	for _, d := range devices {
		var holders []string
		for _, g := range d.Leases {
			holders = append(holders, string(g.Holder))
		}
		row := []string{
			string(d.ID), string(d.Type), d.Memory.String(), d.Free.String(), strconv.Itoa(d.Units),
			orDash(strings.Join(holders, " ")),
		}
		if len(links) > 0 {
			row = append(row, roundTrip(links, d.Node), bandwidths(links, d.Node))
		}
		rows = append(rows, append(row, d.Name))
	}
	warnIncomplete(ctx, env)
	return opts.output.print(env, devices, titles, rows)
}
