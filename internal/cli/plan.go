package cli

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard/internal/accel/overhead"
)

type planOptions struct {
	output      format
	rtt         durationRange
	bandwidth   bandwidthRange
	plot        string
	maxSlowdown percentage
	whatIf      string
	together    bool
}

func (o *planOptions) addFlags(flags *pflag.FlagSet) {
	o.output.addFlag(flags)
	flags.Var(&o.rtt, "rtt", "predict for a network with this round-trip time, or a range such as 5us..5ms")
	flags.Var(&o.bandwidth, "bandwidth", "and this bandwidth in each direction, or a range such as 100Mbit..400Gbit")
	flags.StringVar(&o.plot, "plot", "", "draw the slowdown over the ranges into `FILE`, .svg or .html")
	flags.Var(&o.maxSlowdown, "max-slowdown", "find the slowest network that keeps the slowdown, such as 5%")
	flags.StringVar(&o.whatIf, "what-if", "", "predict without some optimisations too: locality=off,shadow=off,async=off")
	flags.BoolVar(&o.together, "together", false, "the programs of all traces start at once, and share link and devices")
}

func (o *planOptions) validate(args []string) error {
	switch {
	case len(args) > 1 && !o.together:
		return usage("%d traces: --together predicts them as programs that run at the same time; otherwise name one", len(args))
	case o.together && (o.rtt.isRange() || o.bandwidth.isRange() || !o.rtt.set && !o.bandwidth.set):
		return usage("--together needs one network: add --rtt 1ms and --bandwidth 1Gbit, for instance")
	case o.together && (o.plot != "" || o.maxSlowdown > 0 || o.whatIf != ""):
		return usage("--together predicts one network; leave out --plot, --max-slowdown and --what-if")
	case o.maxSlowdown > 0 && o.bandwidth.set && o.plot == "":
		return usage("--max-slowdown finds the bandwidth; leave out --bandwidth")
	case o.whatIf != "" && (o.maxSlowdown > 0 || o.plot != ""):
		return usage("--what-if compares predictions for devices or networks; leave out --max-slowdown and --plot")
	case o.plot != "" && (o.rtt.set && !o.rtt.isRange() || o.bandwidth.set && !o.bandwidth.isRange()):
		return usage("--plot draws ranges, such as --rtt 5us..5ms --bandwidth 100Mbit..400Gbit; leave them out for these")
	case o.plot != "" && !strings.HasSuffix(o.plot, ".svg") && !strings.HasSuffix(o.plot, ".html"):
		return usage("--plot %s: want a name that ends with .svg or .html", o.plot)
	}
	_, err := parseWhatIf(o.whatIf)
	return err
}

func newPlanCommand(env *Env) *cobra.Command {
	var opts planOptions
	cmd := &cobra.Command{
		Use:   "plan [flags] TRACE...",
		Short: "Predict what a program costs on another machine's device",
		Long: `Predict what a program costs on another machine's device, from a recording of one run.

` + "`outboard run --trace FILE -- PROGRAM`" + ` makes a recording; with --local it needs no device but
this machine's own. Without --rtt and --bandwidth the devices of the pool are compared, each over
the network as it is measured now (` + "`outboard network`" + `). The interval holds 95 of 100 runs.

Forwarding costs what ` + "`outboard calibrate`" + ` has measured on this machine. docs/plan.md says how a
prediction is made, and where it is wrong.`,
		Example: `  outboard plan out.trace                                     # each device of the pool
  outboard plan out.trace --rtt 200us --bandwidth 1Gbit       # one network
  outboard plan out.trace --rtt 5us..5ms --bandwidth 100Mbit..400Gbit --plot plan.html
  outboard plan out.trace --max-slowdown 5%                   # the slowest network that keeps it
  outboard plan out.trace --rtt 1ms --what-if locality=off,shadow=off,async=off
  outboard plan a.trace b.trace --together --rtt 1ms --bandwidth 1Gbit`,
		Args: countedArgs(1, math.MaxInt, "name a trace: record one with `outboard run --trace FILE -- PROGRAM`"),
		RunE: func(cmd *cobra.Command, args []string) error { return runPlan(cmd.Context(), env, opts, args) },
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			return []string{"trace"}, cobra.ShellCompDirectiveFilterFileExt
		},
	}
	opts.addFlags(cmd.Flags())
	complete(cmd, "output", completeFormat)
	complete(cmd, "what-if", completeWords("locality=off", "shadow=off", "async=off", "locality=off,shadow=off,async=off"))
	_ = cmd.MarkFlagFilename("plot", "svg", "html") // the flag exists
	cmd.AddCommand(newPlanTrainCommand(env))
	return cmd
}

// plan is the output of `outboard plan`.
type plan struct {
	Program string `json:"program,omitempty"`
	// Local is the program's time on a device of its own machine, in seconds. Several programs have
	// theirs in Links.
	Local float64 `json:"local_s,omitempty"`
	// Traffic is the program's traffic with a remote device.
	Traffic    *planTraffic      `json:"traffic,omitempty"`
	Calibrated bool              `json:"calibrated"`
	Links      []planLink        `json:"links,omitempty"`
	Required   []planRequirement `json:"required,omitempty"`
}

// planTraffic is a program's traffic over the network.
type planTraffic struct {
	// RoundTrips counts the calls that wait for a reply, Messages all calls that send a message.
	RoundTrips uint64 `json:"round_trips"`
	Messages   uint64 `json:"messages"`
	Up         uint64 `json:"up_bytes"`
	Down       uint64 `json:"down_bytes"`
}

// planLink is the prediction for one network.
type planLink struct {
	Program string      `json:"program,omitempty"`
	Local   float64     `json:"local_s,omitempty"`
	Device  string      `json:"device,omitempty"`
	Network planNetwork `json:"network"`
	// DeviceTime is the device's time as a multiple of the recorded device's; 0 is the same.
	DeviceTime float64            `json:"device_time,omitempty"`
	Wall       float64            `json:"wall_s"`
	Low        float64            `json:"low_s"`
	High       float64            `json:"high_s"`
	Slowdown   float64            `json:"slowdown"`
	WhatIf     map[string]float64 `json:"what_if_wall_s,omitempty"`
	// Unknown is the reason that there is no prediction.
	Unknown string `json:"unknown,omitempty"`
}

type planNetwork struct {
	RTT          float64 `json:"rtt_s"`
	Up           float64 `json:"up_bits_per_s"`
	Down         float64 `json:"down_bits_per_s"`
	SharedMemory bool    `json:"shared_memory,omitempty"`
}

type planRequirement struct {
	RTT       float64 `json:"rtt_s"`
	Bandwidth float64 `json:"bandwidth_bits_per_s"`
	Possible  bool    `json:"possible"`
	// Low and High are the ends of the interval around Bandwidth; 0: no bandwidth suffices.
	Low  float64 `json:"low_bits_per_s"`
	High float64 `json:"high_bits_per_s"`
}

func runPlan(ctx context.Context, env *Env, opts planOptions, args []string) error {
	if err := opts.validate(args); err != nil {
		return err
	}
	p := planner{env: env, opts: opts, files: args}
	if err := p.open(ctx); err != nil {
		return err
	}
	var err error
	switch {
	case opts.together:
		err = p.together()
	case opts.plot != "":
		err = p.draw(ctx)
	case opts.maxSlowdown > 0:
		err = p.require()
	case opts.rtt.set || opts.bandwidth.set:
		err = p.networks()
	default:
		err = p.devices(ctx)
	}
	if err != nil {
		return err
	}
	p.printIncomplete()
	return p.print()
}

// optimisations are the words of --what-if.
var optimisations = []struct {
	name string
	off  overhead.WhatIf
}{
	{"locality", overhead.WhatIf{NoLocality: true}}, {"shadow", overhead.WhatIf{NoShadow: true}}, {"async", overhead.WhatIf{NoAsync: true}},
}

// whatIf is a combination of disabled optimisations.
type whatIf struct {
	name string
	off  overhead.WhatIf
}

// parseWhatIf returns each optimisation that the text disables, and all of them together.
func parseWhatIf(text string) ([]whatIf, error) {
	if text == "" {
		return nil, nil
	}
	var out []whatIf
	all := whatIf{name: "all of these off"}
	named := map[string]bool{}
	for part := range strings.SplitSeq(text, ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		found := named[name] && value == "off"
		for _, o := range optimisations {
			if !found && o.name == name && value == "off" {
				found, named[name] = true, true
				out = append(out, whatIf{name + " off", o.off})
				all.off.NoLocality = all.off.NoLocality || o.off.NoLocality
				all.off.NoShadow = all.off.NoShadow || o.off.NoShadow
				all.off.NoAsync = all.off.NoAsync || o.off.NoAsync
			}
		}
		if !found {
			return nil, usage("--what-if %s: want locality=off, shadow=off or async=off, or some of them with commas", part)
		}
	}
	if len(out) > 1 {
		out = append(out, all)
	}
	return out, nil
}

// percentage is the value of --max-slowdown, as a fraction.
type percentage float64

// Set, String and Type implement pflag.Value.
func (p *percentage) Set(text string) error {
	v, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
	if err != nil || !(v > 0 && v <= 10000) || !strings.HasSuffix(text, "%") {
		return fmt.Errorf("want a percentage above 0%% and up to 10000%%, such as 5%%")
	}
	*p = percentage(v / 100)
	return nil
}

func (p *percentage) String() string {
	if *p == 0 {
		return ""
	}
	return strconv.FormatFloat(float64(*p)*100, 'g', 10, 64) + "%" // 0.07 * 100 is not 7 to the last digit.
}

// Type returns the name of the value in help texts.
func (p *percentage) Type() string { return "percentage" }
