package cli

import (
	"context"
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
	var rows [][]string
	for _, d := range devices {
		var holders []string
		for _, g := range d.Leases {
			holders = append(holders, string(g.Holder))
		}
		rows = append(rows, []string{
			string(d.ID), string(d.Type), d.Memory.String(), d.Free.String(), strconv.Itoa(d.Units),
			orDash(strings.Join(holders, " ")), d.Name,
		})
	}
	return opts.output.print(env, devices, []string{"DEVICE", "TYPE", "MEMORY", "FREE", "UNITS", "LEASED BY", "NAME"}, rows)
}
