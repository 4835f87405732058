package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/accel/opencl/driver"
	"github.com/outboard-run/outboard/internal/accel/recording"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// recordOptions are the flags of `outboard run` for recording.
type recordOptions struct {
	file  string
	local bool
	limit outboard.Bytes
	// forget says that no recording is stored or used for placement.
	forget bool
}

func (o *recordOptions) addFlags(flags *pflag.FlagSet) {
	o.limit = 4 << 30
	flags.StringVar(&o.file, "trace", "", "record the program's calls into `FILE`")
	flags.BoolVar(&o.local, "local", false, "use this machine's own drivers, without a lease, to record the program there; needs --trace")
	flags.BoolVar(&o.forget, "no-trace", false, "do not remember the recording, nor choose the device by an earlier one")
	flags.Var(&o.limit, "trace-limit", "most disk space that each process's recording may use while the program runs")
}

func (o *recordOptions) validate() error {
	switch {
	case o.local && o.file == "":
		return usage("--local records a program on this machine's own drivers: add --trace FILE, or start the program without outboard")
	case o.limit < 1<<20:
		return usage("--trace-limit %v: want 1MiB or more", o.limit)
	}
	return nil
}

// recorder records the program of `outboard run`; nil records nothing.
type recorder struct {
	*recording.Recorder
	file   string
	forget bool
}

// newRecorder begins a recording if the options request one. devices is nil in a local run.
func (o *runOptions) newRecorder(path string, args []string, devices []trace.Device) (*recorder, error) {
	if o.record.file == "" {
		return nil, nil
	}
	mode := trace.Remote
	if o.record.local {
		mode = trace.Local
	}
	r, err := recording.NewRecorder(recording.RecorderOptions{
		File: o.record.file, Mode: mode, Path: path, Args: args, Devices: devices, Limit: o.record.limit, Release: version,
	})
	if err != nil {
		return nil, err
	}
	return &recorder{Recorder: r, file: o.record.file, forget: o.record.forget}, nil
}

func (r *recorder) environ() []string {
	if r == nil {
		return nil
	}
	return r.Environ()
}

// discard ends a recording of a program that did not start.
func (r *recorder) discard() error {
	if r == nil {
		return nil
	}
	return r.Discard()
}

// close writes the trace. A failure does not change the program's exit status. lost says that the
// program lost a session.
func (r *recorder) close(env *Env, status int, lost bool) {
	if r == nil {
		return
	}
	end, err := r.Close(status)
	if err == nil && isWholeRun(&end, status, lost) && !r.forget {
		err = env.keepTrace(r.Fingerprint(), r.file)
	}
	switch {
	case err != nil:
		fmt.Fprintf(env.Stderr, "outboard: no trace was written: %s\n", clean(err.Error()))
	case end.Records == 0:
		fmt.Fprintf(env.Stderr, "outboard: %s has no calls: the program used no OpenCL, or not through a loader that knows layers (ocl-icd from 2.3 on, Khronos's from 2021 on)\n", r.file)
	case end.Lost > 0:
		fmt.Fprintf(env.Stderr, "outboard: %s lacks %d calls that found no room: raise --trace-limit, or free disk space\n", r.file, end.Lost)
	}
}

// isWholeRun reports whether a recording has all calls of a successful run, as a prediction of the
// next run needs. A program may end with status 0 although it lost its session.
func isWholeRun(end *trace.End, status int, lost bool) bool {
	return end.Records > 0 && end.Lost == 0 && status == 0 && !lost
}

// leasedDevices returns the devices of a program's leases in the form of a trace, with this node's
// measured bandwidths to their nodes.
func leasedDevices(ctx context.Context, env *Env, hold *client.Hold) []trace.Device {
	links, _ := env.client().Nearest(ctx) // without them the trace lacks bandwidths
	var devices []trace.Device
	for _, l := range hold.Leases() {
		node, _, _ := strings.Cut(string(l.Device), "/")
		d := trace.Device{ID: string(l.Device), Name: string(l.Device), Kind: string(l.About.Type), Machine: trace.Machine{Node: node}, SameMachine: l.Addr == ""}
		if l.About.Type == outboard.CPU {
			d.Machine.Cores = l.About.Units
		}
		if link := linkTo(links, outboard.NodeID(node)); link != nil && !d.SameMachine {
			d.Link.Forward, d.Link.Backward = link.Forward, link.Backward
		}
		devices = append(devices, d)
	}
	return devices
}

// runLocal runs the program with the drivers of this machine and records it: as a layer of the
// OpenCL loader, the driver library times the calls of the real driver.
func runLocal(ctx context.Context, env *Env, opts runOptions, path string, args []string) error {
	vendors, err := env.Vendors(filepath.Join(env.commandFolder(), "driver"))
	if err != nil {
		return err
	}
	recorder, err := opts.newRecorder(path, args, nil)
	if err != nil {
		return err
	}
	layer := filepath.Join(filepath.Dir(vendors), driver.Name)
	p := program{path: path, args: args, environ: append(withLayer(env.Environ, layer), recorder.environ()...)}
	status, err := p.run(ctx, env)
	if err != nil {
		return errors.Join(err, recorder.discard()) // the program did not start
	}
	recorder.close(env, status, false)
	if status != 0 {
		return &statusError{status: status}
	}
	return nil
}

// withLayer adds a layer of the OpenCL loader to an environment. The loader puts later layers in
// front of earlier ones: the first layer, ours, is next to the driver.
func withLayer(environ []string, layer string) []string {
	const name = "OPENCL_LAYERS="
	for i, v := range environ {
		if rest, ok := strings.CutPrefix(v, name); ok && rest != "" {
			out := slices.Clone(environ)
			out[i] = name + layer + ":" + rest
			return out
		}
	}
	return append(slices.Clip(environ), name+layer)
}
