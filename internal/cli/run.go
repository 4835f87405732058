package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/borrow"
	"github.com/outboard-run/outboard/internal/timeslice"
)

type runOptions struct {
	device    outboard.Selector
	count     int
	memory    outboard.Bytes
	weight    int
	timeout   time.Duration
	noWait    bool
	deadAfter time.Duration
	record    recordOptions
	// maxSlowdown excludes devices that a plan predicts to be slower, 0: none.
	maxSlowdown percentage
}

func (o *runOptions) addFlags(flags *pflag.FlagSet) {
	flags.Var(&o.device, "device", "devices that match `SELECTOR`, such as type=gpu,memory>=4GiB,vendor~nvidia, or a device's id")
	flags.IntVar(&o.count, "count", 1, "number of devices")
	flags.Var(&o.memory, "memory", "device memory that the program may use, the rest is for others; 0 means the whole device")
	flags.IntVar(&o.weight, "weight", 1, "share of device time against other programs")
	flags.DurationVar(&o.timeout, "timeout", 30*time.Second, "how long to wait for a device; 0 means for ever")
	flags.BoolVar(&o.noWait, "no-wait", false, "fail at once when all devices that match are leased")
	flags.DurationVar(&o.deadAfter, "dead-after", 5*time.Second, "time without an answer after which a node or network counts as dead")
	flags.Var(&o.maxSlowdown, "max-slowdown", "refuse devices on which the program is predicted to be slower by more than this, such as 10%; needs a recording of it")
	o.record.addFlags(flags)
	markSettings(flags)
}

func (o *runOptions) validate() error {
	switch {
	case o.count < 1:
		return usage("--count %d: want 1 or more", o.count)
	case o.weight < 1 || o.weight > outboard.MaxWeight:
		return usage("--weight %d: want 1 to %d", o.weight, outboard.MaxWeight)
	case o.timeout < 0:
		return usage("--timeout %v: want 0 or more", o.timeout)
	case o.deadAfter < minDeadAfter:
		return usage("--dead-after %v: want %v or more", o.deadAfter, minDeadAfter)
	}
	if o.maxSlowdown > 0 && (o.record.forget || o.record.local) {
		return usage("--max-slowdown needs a recording of the program and a leased device; leave out --no-trace and --local")
	}
	if o.record.local && o.choosesLease() {
		return usage("--local uses all of this machine's own drivers, without a lease; leave out --device, --count, --memory, --weight and --no-wait")
	}
	return o.record.validate()
}

// choosesLease reports whether the options say which device is leased, or how.
func (o *runOptions) choosesLease() bool {
	return o.device.String() != "" || o.count != 1 || o.memory != 0 || o.weight != 1 || o.noWait
}

const minDeadAfter = 100 * time.Millisecond

func newRunCommand(env *Env) *cobra.Command {
	var opts runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGS...]",
		Short: "Run a program with a borrowed device",
		Long: `Run a program with a borrowed device.

Leases a device of the pool, and starts the program so that its OpenCL loader finds that
device and no other. The program runs unchanged; three environment variables are set
(OCL_ICD_VENDORS, OUTBOARD_SOCKET, OUTBOARD_DEAD_AFTER) and OCL_ICD_FILENAMES is removed. The
lease ends with the program, and so do the sessions of processes that it leaves behind.

With --trace the calls are recorded into a file, which ` + "`outboard trace show`" + ` summarises and
` + "`outboard plan`" + ` predicts from what the program costs on other devices. With --local the program
uses the drivers of this machine, without a lease or a node, and is recorded there.

A recorded program is remembered by its file and arguments: its next runs lease the device that
the plan predicts to be the fastest, and --max-slowdown refuses those that would be slower.
With --no-trace no recording is remembered or used.

The exit status is the program's own; see ` + "`outboard help exit-status`" + ` for the others.`,
		Example: `  outboard run -- clinfo
  outboard run --device 'type=gpu,memory>=4GiB' -- hashcat -b
  outboard run --memory 2GiB --weight 3 -- ffmpeg -init_hw_device opencl -i in.mp4 out.mp4
  outboard run --count 2 --no-wait -- ./two-devices
  outboard run --max-slowdown 10% -- ./program     # only where that is predicted
  outboard run --trace out.trace -- ./program      # records the calls
  outboard run --local --trace out.trace -- ./program   # those of this machine's own device`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usage("name the program to run: outboard run -- PROGRAM [ARGS...]")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if opts.record.file == "" && cmd.Flags().Changed("trace") { // an unset variable of a script
				return usage("--trace: the name of the file is empty")
			}
			return runRun(cmd.Context(), env, opts, args)
		},
	}
	opts.addFlags(cmd.Flags())
	// Arguments after the program's name belong to the program.
	cmd.Flags().SetInterspersed(false)
	complete(cmd, "device", env.completeSelector)
	return cmd
}

func runRun(ctx context.Context, env *Env, opts runOptions, args []string) error {
	if err := opts.validate(); err != nil {
		return err
	}
	env.ignoreKeys()
	path, err := findProgram(env, args[0])
	if err != nil {
		return err
	}
	if err := env.prepareFolders(); err != nil {
		return err
	}
	if opts.record.local {
		return runLocal(ctx, env, opts, path, args)
	}
	devices, err := opts.rankDevices(ctx, env, path, args)
	if err != nil {
		return err
	}
	hold, err := acquire(ctx, env, opts, args, devices)
	if err != nil {
		return err
	}
	defer hold.Close()
	vendors, err := env.Vendors(filepath.Join(env.commandFolder(), "driver"))
	if err != nil {
		return err
	}
	dir, err := newSocketFolder(env)
	if err != nil {
		return err
	}
	defer dir.remove()
	socket := filepath.Join(dir.path, "session.sock")
	routes := newRoutes(ctx, env.config.data, opts, hold)
	defer routes.close()
	server, err := borrow.Open(ctx, borrow.Options{Socket: socket, Leases: routes.leases(), DeadAfter: opts.deadAfter, Early: true})
	if err != nil {
		return err
	}
	defer server.Close()
	go endWithLeases(ctx, hold, server)
	p := program{path: path, args: args, environ: programEnviron(env.Environ, vendors, socket, opts.deadAfter), slice: timeslice.Current()}
	shortSlices() // a session's relays wait for the threads that run when a message arrives
	recorder, err := opts.newRecorder(path, args, leasedDevices(ctx, env, hold))
	if err != nil {
		return err
	}
	p.environ = append(p.environ, recorder.environ()...)
	watch := watchLosses(env, server, hold)
	status, err := p.run(ctx, env)
	_ = server.Close() // the watch reports a loss
	lost := watch.stop()
	if err != nil {
		return errors.Join(err, recorder.discard()) // the program did not start
	}
	recorder.close(env, status, lost)
	switch {
	case status != 0 && lost:
		// The loss was reported when it happened.
		return &statusError{status: kindStatus(outboard.SessionLost)}
	case status != 0:
		return &statusError{status: status}
	}
	return nil
}

// acquire requests the leases from the node, and shows the wait.
func acquire(ctx context.Context, env *Env, opts runOptions, args []string, devices placement) (*client.Hold, error) {
	p := progress{env: env}
	defer p.done()
	return env.client().Acquire(ctx, client.LeaseRequest{
		Selector: opts.device, Count: opts.count, Memory: opts.memory, Weight: opts.weight,
		Prefer: devices.prefer, Exclude: devices.exclude, NoWait: opts.noWait, Timeout: client.Duration(opts.timeout), Program: filepath.Base(args[0]),
	}, p.show)
}

// progress shows the wait for a device: on a terminal in a line that is updated, otherwise once.
type progress struct {
	env   *Env
	shown bool
}

func (p *progress) show(w client.Waiting) {
	text := fmt.Sprintf("waiting for a device: place %d in the queue", w.Position)
	var holders []string
	for _, l := range w.Holders {
		holders = append(holders, strings.TrimSuffix(fmt.Sprintf("%s runs %s on %s", l.Holder, orDash(l.Program), l.Device), " "))
	}
	slices.Sort(holders)
	if len(holders) > 0 {
		text += "; " + strings.Join(slices.Compact(holders), ", ")
	}
	text = clean(text)
	switch {
	case p.env.Terminal:
		fmt.Fprintf(p.env.Stderr, "\r\x1b[K%s", text)
	case !p.shown:
		fmt.Fprintf(p.env.Stderr, "outboard: %s\n", text)
	}
	p.shown = true
}

func (p *progress) done() {
	if p.shown && p.env.Terminal {
		fmt.Fprint(p.env.Stderr, "\r\x1b[K")
	}
}

// programEnviron returns the program's environment: the caller's with three more variables, and
// without OCL_ICD_FILENAMES, whose drivers Khronos's loader would load besides ours.
func programEnviron(environ []string, vendors, socket string, deadAfter time.Duration) []string {
	ours := []string{
		"OCL_ICD_VENDORS=" + vendors,
		"OUTBOARD_SOCKET=" + socket,
		"OUTBOARD_DEAD_AFTER=" + deadAfter.String(),
	}
	var out []string
	for _, v := range environ {
		name, _, _ := strings.Cut(v, "=")
		if name != "OCL_ICD_FILENAMES" && !slices.ContainsFunc(ours, func(o string) bool { return strings.HasPrefix(o, name+"=") }) {
			out = append(out, v)
		}
	}
	return append(out, ours...)
}
