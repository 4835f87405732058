package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/overhead"
	"github.com/outboard-run/outboard/internal/accel/recording"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

// placement is a plan's verdict on the devices for a program: the best ones, and those that are too
// slow.
type placement struct {
	prefer, exclude []outboard.DeviceID
}

// traceStore returns the store of the traces that this machine has recorded.
func (env *Env) traceStore() recording.Store {
	return recording.Store{Dir: filepath.Join(env.commandFolder(), "traces")}
}

// shortestTraceAge is how long a kept trace takes precedence over newer, longer traces of the same
// work.
const shortestTraceAge = 7 * 24 * time.Hour

// keepTrace stores a recording for placement. A stored recording of the same work in less time is
// kept instead: the new run compiled kernels, which drivers cache, or was disturbed.
func (env *Env) keepTrace(fingerprint, file string) error {
	store := env.traceStore()
	kept, err := store.Path(fingerprint)
	if err != nil {
		return store.Put(fingerprint, file)
	}
	info, err := os.Stat(kept)
	if err == nil && time.Since(info.ModTime()) < shortestTraceAge && isSameWorkFaster(kept, file) {
		return nil
	}
	return store.Put(fingerprint, file)
}

// isSameWorkFaster reports whether two traces have about the same number of calls, and the first
// would run faster on a device of its own machine.
func isSameWorkFaster(first, second string) bool {
	var local [2]time.Duration
	var calls [2]float64
	for i, path := range []string{first, second} {
		file := traceFile{path: path}
		found, err := overhead.Predict(file.open, []overhead.Link{{}}, overhead.Options{Constants: overhead.DefaultConstants()})
		if err != nil {
			return false
		}
		local[i], calls[i] = found[0].Local, float64(found[0].Traffic.Calls)
	}
	const similar = 1.02
	return local[0] < local[1] && calls[0] < calls[1]*similar && calls[1] < calls[0]*similar
}

// rankDevices predicts the program's time on the pool's devices, if a trace of the program is
// stored. Otherwise the node chooses by the measured network and by load.
func (o *runOptions) rankDevices(ctx context.Context, env *Env, path string, args []string) (placement, error) {
	if o.record.forget {
		return placement{}, nil
	}
	links, program, err := o.predict(ctx, env, path, args)
	switch {
	case err != nil && o.maxSlowdown > 0:
		return placement{}, outboard.Errorf(outboard.Invalid, "--max-slowdown", "the slowdown cannot be predicted: %w", err)
	case err != nil:
		return placement{}, nil //nolint:nilerr // the node chooses without a prediction
	}
	p := placement{}
	slices.SortStableFunc(links, func(a, b planLink) int { return cmp.Compare(a.Wall, b.Wall) })
	for _, l := range links {
		id := outboard.DeviceID(l.Device)
		switch {
		case l.Unknown != "" && o.maxSlowdown > 0, o.tooSlow(&l):
			p.exclude = append(p.exclude, id)
		case l.Unknown == "":
			p.prefer = append(p.prefer, id)
		}
	}
	if len(p.prefer) == 0 && o.maxSlowdown > 0 {
		return p, o.refusal(links)
	}
	if len(p.prefer) > 0 {
		best := links[slices.IndexFunc(links, func(l planLink) bool { return l.Device == string(p.prefer[0]) })]
		fmt.Fprintf(env.Stderr, "outboard: by a recording of %s, %s suits best: about %s, %s\n",
			clean(program), clean(best.Device), seconds(best.Wall), slower(best.Slowdown))
	}
	return p, nil
}

// predict predicts the program's time on each matching device of the pool.
func (o *runOptions) predict(ctx context.Context, env *Env, path string, args []string) ([]planLink, string, error) {
	fingerprint, err := trace.Fingerprint(path, args)
	if err != nil {
		return nil, "", err
	}
	file, err := env.traceStore().Path(fingerprint)
	if err != nil {
		return nil, "", fmt.Errorf("no recording of this program with these arguments is known: make one with `outboard run --local --trace FILE -- %s ...`", args[0])
	}
	devices, err := env.client().Devices(ctx, o.device)
	if err != nil {
		return nil, "", err
	}
	quiet := *env
	quiet.Stderr = io.Discard // drops the hints of `outboard plan`
	p := planner{env: &quiet, files: []string{file}}
	if err := p.open(ctx); err != nil {
		if outboard.KindOf(err) == outboard.Invalid { // the trace is damaged
			err = fmt.Errorf("%w; make another with `outboard run --local --trace FILE -- %s ...`", err, args[0])
		}
		return nil, "", err
	}
	if err := p.devices(ctx); err != nil {
		return nil, "", err
	}
	links := slices.DeleteFunc(p.plan.Links, func(l planLink) bool {
		for i := range devices {
			if string(devices[i].ID) == l.Device {
				return false
			}
		}
		return true
	})
	return links, p.plan.Program, nil
}

func (o *runOptions) tooSlow(l *planLink) bool {
	return o.maxSlowdown > 0 && l.Unknown == "" && l.Slowdown-1 > float64(o.maxSlowdown)
}

// refusal returns the reason that no device is fast enough.
func (o *runOptions) refusal(links []planLink) error {
	if len(links) == 0 {
		return outboard.Errorf(outboard.NoDevice, "--max-slowdown "+o.maxSlowdown.String(), "the pool has no device that matches: see `outboard devices`")
	}
	known := slices.DeleteFunc(slices.Clone(links), func(l planLink) bool { return l.Unknown != "" })
	if len(known) == 0 {
		return outboard.Errorf(outboard.NoDevice, "--max-slowdown "+o.maxSlowdown.String(),
			"no way to a device that matches is measured: see `outboard network`")
	}
	best := known[0]
	return outboard.Errorf(outboard.NoDevice, "--max-slowdown "+o.maxSlowdown.String(),
		"the best device that matches, %s, is predicted to be %s (round trip %s): allow more, or see `outboard plan`",
		best.Device, slower(best.Slowdown), seconds(best.Network.RTT))
}

// slower describes a slowdown, given as a multiple of the local time.
func slower(multiple float64) string {
	fraction := multiple - 1
	if fraction < 0 {
		return fmt.Sprintf("%.1f%% faster than locally", -100*fraction)
	}
	return fmt.Sprintf("%.1f%% slower than locally", 100*fraction)
}
