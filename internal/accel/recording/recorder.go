package recording

import (
	"bufio"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/opencl"
	"github.com/outboard-run/outboard/internal/accel/trace"
)

const (
	// fileExt ends the names of the processes' files.
	fileExt = ".rec"
	// draftName is the trace until it is complete.
	draftName = "trace"
)

// RecorderOptions configures a Recorder.
type RecorderOptions struct {
	// File is the path of the trace. Until the program has ended, the folder File.recording beside
	// it holds the processes' files.
	File string
	// Mode says whether the program uses local drivers or leased devices.
	Mode trace.Mode
	// Path and Args are the path and the arguments of the program.
	Path string
	Args []string
	// Devices are the devices of the program's leases, in order; nil in a local run.
	Devices []trace.Device
	// Limit bounds the size of one process's file; 0 means 4 GiB.
	Limit outboard.Bytes
	// Release is the version of the program that records.
	Release string
}

// Recorder records one run of a program.
type Recorder struct {
	opts   RecorderOptions
	dir    string
	lock   *os.File // the folder, which is this recorder's while it is open
	header trace.Header
}

// NewRecorder prepares the recording of a program that is about to be started. An existing file
// of that name is replaced when the program has ended.
func NewRecorder(o RecorderOptions) (*Recorder, error) {
	file, err := filepath.Abs(o.File)
	if err != nil {
		return nil, err
	}
	o.File = file
	// The file is replaced, which must not happen to a device such as /dev/null.
	if info, err := os.Stat(file); err == nil && !info.Mode().IsRegular() {
		return nil, outboard.Errorf(outboard.Invalid, "trace", "%s is no file: name one for the recording", file)
	}
	fingerprint, err := trace.Fingerprint(o.Path, o.Args)
	if err != nil {
		return nil, err
	}
	r := &Recorder{opts: o, dir: file + ".recording"}
	if r.lock, err = claimFolder(r.dir); err != nil {
		if errors.Is(err, errClaimed) {
			return nil, outboard.Errorf(outboard.Invalid, "trace", "another run records to %s: name another file", file)
		}
		return nil, err
	}
	r.header = trace.Header{
		API: "opencl", Mode: o.Mode, Origin: monotonic(), Started: time.Now().UTC(),
		Program: trace.Program{Name: filepath.Base(o.Path), Fingerprint: fingerprint},
		Client:  ThisMachine(), Devices: o.Devices, Ops: opencl.Ops, Recorder: o.Release,
	}
	return r, nil
}

// Fingerprint returns the fingerprint of the program.
func (r *Recorder) Fingerprint() string { return r.header.Program.Fingerprint }

// Environ returns the variables that make the driver library record.
func (r *Recorder) Environ() []string {
	variables := []string{"OUTBOARD_TRACE=" + r.dir}
	if r.opts.Limit > 0 {
		variables = append(variables, "OUTBOARD_TRACE_LIMIT="+strconv.FormatUint(uint64(r.opts.Limit), 10))
	}
	return variables
}

// Discard removes the recording.
func (r *Recorder) Discard() error {
	err := os.RemoveAll(r.dir)
	return errors.Join(err, r.lock.Close())
}

// Close joins the recording into the file, once the program has ended with a status.
func (r *Recorder) Close(status int) (end trace.End, err error) {
	defer func() { err = errors.Join(err, r.Discard()) }()
	end = trace.End{Duration: monotonic() - r.header.Origin, Status: status}
	draft := filepath.Join(r.dir, draftName)
	end, err = r.write(draft, end)
	if err != nil {
		return end, err
	}
	return end, os.Rename(draft, r.opts.File)
}

func (r *Recorder) write(path string, end trace.End) (trace.End, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return end, err
	}
	w := bufio.NewWriterSize(f, 1<<20)
	end, err = Join(w, Options{Dir: r.dir, Header: r.header, End: end})
	return end, errors.Join(err, w.Flush(), f.Close())
}

func monotonic() int64 {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &t); err != nil {
		return 0
	}
	return t.Nano()
}

// ThisMachine describes the machine of this process.
func ThisMachine() trace.Machine {
	name, _ := os.Hostname()
	return trace.Machine{Node: name, Cores: runtime.NumCPU(), Model: processorModel()}
}

// processorModel returns the first processor's name, "" if the system does not tell it.
func processorModel() string {
	f, err := os.Open("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	defer f.Close()
	head, _ := io.ReadAll(io.LimitReader(f, 8<<10))
	for line := range strings.Lines(string(head)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
