package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/calibrate"
	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

type calibrateOptions struct {
	output format
	rounds int
}

func newCalibrateCommand(env *Env) *cobra.Command {
	var opts calibrateOptions
	cmd := &cobra.Command{
		Use:   "calibrate",
		Short: "Measure what forwarding costs on this machine, for outboard plan",
		Long: `Measure what forwarding costs on this machine, for outboard plan.

A small OpenCL program is timed on this machine's own driver, through a session on this machine
and, if the pool has a device elsewhere, through a session to it: what a message, a wake-up, a
copied byte and a start cost. The devices of the pool, at most 16, are timed with two kernels, one
that computes and one that copies memory: a plan for another device than the recorded one needs
their ratio. It takes about a minute and a half and is kept in the data folder. Run it on an idle
machine, once, and again after its hardware or kernel has changed.`,
		Example: "  outboard calibrate\n  outboard calibrate --rounds 9 -o json",
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runCalibrate(cmd.Context(), env, opts) },
	}
	opts.output.addFlag(cmd.Flags())
	cmd.Flags().IntVar(&opts.rounds, "rounds", 5, "how often each measurement is taken, 1 to 100")
	complete(cmd, "output", completeFormat)
	return cmd
}

func runCalibrate(ctx context.Context, env *Env, opts calibrateOptions) error {
	if opts.rounds < 1 || opts.rounds > 100 {
		return usage("--rounds %d: want 1 to 100", opts.rounds)
	}
	c, err := env.findPaths(ctx)
	if err != nil {
		return err
	}
	if err := c.sample(ctx, opts.rounds); err != nil {
		return err
	}
	constants, err := calibrate.Constants(&c.direct, &c.ring, c.network, calibrate.Spread(workTimes()), overhead.DefaultConstants())
	if err != nil {
		return err
	}
	devices, err := env.client().Devices(ctx, outboard.Selector{})
	if err != nil {
		return err
	}
	result := calibration{Measured: time.Now().UTC(), Cores: runtime.NumCPU(), Constants: constants, Speeds: c.speeds(ctx, devices)}
	if c.network != nil {
		result.RTT = c.network.RTT
	}
	if err := env.prepareFolders(); err != nil {
		return err
	}
	if err := writeConstants(env.commandFolder(), &result); err != nil {
		return err
	}
	if c.network == nil {
		fmt.Fprintln(env.Stderr, "outboard: the pool has no device on another machine: the cost of the network's relays was not measured, and is a typical one")
	}
	if constants.Spread > busySpread {
		fmt.Fprintf(env.Stderr, "outboard: the same work took times that differ by %.0f %%: this machine is busy; run `outboard calibrate` again when it is idle\n", 100*constants.Spread)
	}
	return opts.output.print(env, result, []string{"WHAT", "VALUE"}, append(constantRows(&constants), speedRows(result.Speeds)...))
}

// busySpread is the spread, over runs of the same work, from which a machine counts as busy.
const busySpread = 0.1

// afterPauses returns one of the times measured after pauses, "-" if there are none.
func afterPauses(c *overhead.Constants, of func(*overhead.WakeUp) time.Duration) string {
	var parts []string
	for i := range c.Wakes {
		if w := &c.Wakes[i]; w.Pause > 0 {
			parts = append(parts, fmt.Sprintf("%s after %s", seconds(of(w).Seconds()), seconds(w.Pause.Seconds())))
		}
	}
	return orDash(strings.Join(parts, ", "))
}

func constantRows(c *overhead.Constants) [][]string {
	ns := func(d time.Duration) string { return seconds(d.Seconds()) }
	percent := func(spread float64) string { return fmt.Sprintf("%.1f %%", 100*spread) }
	return [][]string{
		{"a call that is answered locally", ns(c.Local)},
		{"an early call, in the program", ns(c.Encode)},
		{"copying in the program", outboard.Bytes(c.CopyRate).String() + "/s"},
		{"a message, in the worker", ns(c.Dispatch)},
		{"waking up on one machine, each way", ns(c.RingWake)},
		{"a message, in the relays", ns(c.Relay)},
		{"the relays' rate", outboard.Bytes(c.RelayRate).String() + "/s"},
		{"waking up over a network, each way", ns(c.Wake)},
		{"the same, shortly after a message", ns(c.WakeSoon)},
		{"the same, after pauses", afterPauses(c, func(w *overhead.WakeUp) time.Duration { return w.Wake })},
		{"a small command and a wait for it, on the other machine", afterPauses(c, func(w *overhead.WakeUp) time.Duration { return w.Command })},
		{"the same, on this machine", afterPauses(c, func(w *overhead.WakeUp) time.Duration { return w.LocalCommand })},
		{"a wait for the device, in the worker", ns(c.Wait)},
		{"a build, in the worker", ns(c.Build)},
		{"starting", ns(c.StartUp)},
		{"opening a session, from the program's start", ns(c.Open)},
		{"loading this machine's own driver", ns(c.DriverLoad)},
		{"spread of work from run to run", percent(c.Spread)},
		{"spread of the device's work", percent(c.DeviceSpread)},
		{"spread of messages", percent(c.ForwardingSpread)},
		{"spread of the start", percent(c.StartUpSpread)},
	}
}

// calibrationPaths are the paths to devices, with the commands that measure them.
type calibrationPaths struct {
	env            *Env
	direct, ring   calibrate.Path
	network        *calibrate.Path
	own, elsewhere string
}

// findPaths chooses a device of this node and one of another node.
func (env *Env) findPaths(ctx context.Context) (*calibrationPaths, error) {
	node := env.client()
	self, err := node.Status(ctx)
	if err != nil {
		return nil, err
	}
	devices, err := node.Devices(ctx, outboard.Selector{})
	if err != nil {
		return nil, err
	}
	c := &calibrationPaths{env: env}
	var far *client.Device
	for i := range devices {
		switch {
		case devices[i].Node != self.Node:
			far = &devices[i]
		case c.own == "":
			c.own = string(devices[i].ID)
		}
	}
	if far != nil {
		c.elsewhere = string(far.ID)
		c.network = &calibrate.Path{RTT: env.roundTripTo(ctx, far.Node)}
	}
	if c.own == "" && far == nil {
		return nil, outboard.Errorf(outboard.NoDevice, "calibrate", "neither this node nor another one of the pool offers a device")
	}
	return c, nil
}

// roundTripTo returns the round-trip time to a node that predictions use: that of the probes or,
// before there are any, of a connection.
func (env *Env) roundTripTo(ctx context.Context, node outboard.NodeID) time.Duration {
	if links, err := env.client().Nearest(ctx, node); err == nil {
		if l := linkTo(links, node); l != nil && l.RTT > 0 {
			return l.RTT
		}
	}
	return env.connectTime(ctx, node)
}

// connectTime returns the round-trip time to a node: the shortest time in which its machine
// accepted a connection.
func (env *Env) connectTime(ctx context.Context, node outboard.NodeID) time.Duration {
	nodes, err := env.client().Nodes(ctx)
	if err != nil {
		return 0
	}
	i := slices.IndexFunc(nodes, func(n outboard.Node) bool { return n.ID == node })
	if i < 0 {
		return 0
	}
	const tries = 20
	least := time.Duration(0)
	dialer := net.Dialer{Timeout: time.Second}
	for range tries {
		began := time.Now()
		conn, err := dialer.DialContext(ctx, "tcp", nodes[i].Addr)
		if err != nil {
			return 0
		}
		if took := time.Since(began); least == 0 || took < least {
			least = took
		}
		_ = conn.Close() // no data was sent
	}
	return least
}

// sample measures all paths in turn.
func (c *calibrationPaths) sample(ctx context.Context, rounds int) error {
	for i := range rounds + 1 {
		if c.env.Terminal {
			fmt.Fprintf(c.env.Stderr, "\r\x1b[Kcalibrating: round %d of %d", i, rounds)
		}
		for _, w := range []struct {
			way    *calibrate.Path
			device string
		}{{&c.direct, ""}, {&c.ring, c.own}, {c.network, c.elsewhere}} {
			if w.way == nil || w.way == &c.ring && c.own == "" {
				continue
			}
			way := w.way
			if i == 0 {
				way = &calibrate.Path{} // the first round fills kernel caches
			}
			if err := c.env.measurePath(ctx, way, w.device); err != nil {
				return err
			}
		}
	}
	if c.env.Terminal {
		fmt.Fprint(c.env.Stderr, "\r\x1b[K")
	}
	if c.own == "" {
		// This machine has no device: a message costs as much with another machine's worker.
		c.ring = *c.network
	}
	return nil
}

// measurePath runs the calibrating programs on a device, or on this machine's own driver.
func (env *Env) measurePath(ctx context.Context, w *calibrate.Path, device string) error {
	var s calibrate.Sample
	took, err := env.runCalibration(ctx, &s, "calibrate", device)
	if err != nil {
		return err
	}
	// The time to start: without the build and the later measurements.
	s.First = float64(took) - s.Wall + s.Load
	s.Wall = float64(took) - s.Wall + s.Open
	waits, err := env.measureWaits(ctx, device)
	if err != nil {
		return err
	}
	w.Samples, w.Waits = append(w.Samples, s), append(w.Waits, waits)
	return nil
}

// measureWaits runs the program that waits, and records it if a session is on its path.
func (env *Env) measureWaits(ctx context.Context, device string) (w calibrate.Waits, err error) {
	if device == "" {
		_, err = env.runCalibration(ctx, &w, "calibrate-waits", "")
		return w, err
	}
	dir, err := os.MkdirTemp("", "outboard-calibrate-")
	if err != nil {
		return w, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	recording := filepath.Join(dir, "waits")
	var seen calibrate.Waits // as seen by the program, including the path to the device
	if _, err := env.runCalibration(ctx, &seen, "calibrate-waits", device, "--trace", recording); err != nil {
		return w, err
	}
	r, f, err := openTrace(ctx, recording)
	if err != nil {
		return w, err
	}
	defer f.Close()
	return calibrate.ReadWaits(r)
}

// runCalibration runs a calibrating program on a device, with flags of `outboard run`, decodes its
// output and returns how long it took.
func (env *Env) runCalibration(ctx context.Context, out any, program, device string, flags ...string) (time.Duration, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	args := append(slices.Clone(env.Helper), program)
	if len(env.Helper) == 0 {
		args = []string{self, "internal", program}
	}
	if device != "" {
		run := append([]string{self, "--data", env.config.data, "run", "--no-trace", "--device", device}, flags...)
		args = append(append(run, "--"), args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = env.Environ
	// The signal lets `outboard run` end its session and remove its files.
	cmd.Cancel, cmd.WaitDelay = func() error { return cmd.Process.Signal(syscall.SIGTERM) }, 2*time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			return 0, ctx.Err()
		}
		return 0, fmt.Errorf("calibrate: %w: %s", err, clean(strings.TrimSpace(stderr.String())))
	}
	return time.Since(began), json.Unmarshal(stdout.Bytes(), out)
}

// runCalibrationProgram is the helper process that makes the measured calls.
func runCalibrationProgram(env *Env) error {
	signal.Reset(os.Interrupt, syscall.SIGTERM) // they end the measurement
	s, err := calibrate.Measure(opencl.Library)
	if err != nil {
		return err
	}
	return json.NewEncoder(env.Stdout).Encode(s)
}

// runCalibrationWaits is the helper process that makes the measured calls that wait.
func runCalibrationWaits(env *Env) error {
	signal.Reset(os.Interrupt, syscall.SIGTERM) // as above
	w, err := calibrate.MeasureWaits(opencl.Library)
	if err != nil {
		return err
	}
	return json.NewEncoder(env.Stdout).Encode(w)
}

// workTimes returns the times of the same work on this machine.
func workTimes() []time.Duration {
	const runs, steps = 40, 4_000_000
	var times []time.Duration
	x := uint64(1)
	for range runs {
		began := time.Now()
		for range steps {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
		}
		times = append(times, time.Since(began))
	}
	if x == 0 { // never true: it keeps the compiler from removing the loop
		return nil
	}
	return times
}
