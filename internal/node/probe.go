package node

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/outboard-run/outboard"
)

// probeLimit is how long drivers may take to list their devices.
const probeLimit = 30 * time.Second

// probe lists the machine's devices in a separate process: a driver that crashes or hangs costs its
// devices, and not the node.
func probe(ctx context.Context, helper []string) ([]outboard.Device, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, helper[0], append(helper[1:], "probe", string(outboard.OpenCL))...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = time.Second
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	const op = "list devices"
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = errors.Join(err, ctx.Err())
		}
		return nil, outboard.Errorf(outboard.Other, op, "the probe of the OpenCL drivers ended: %w: %s", err, lastLine(stderr.String()))
	}
	var devices []outboard.Device
	if err := json.Unmarshal(stdout.Bytes(), &devices); err != nil {
		return nil, outboard.Errorf(outboard.Protocol, op, "%w", err)
	}
	return devices, nil
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	return last[:min(len(last), 300)]
}

// An offeredDevice is a device that the node offers, with its number in the probe's list.
type offeredDevice struct {
	outboard.Device
	index int
}

// offerDevices names the probed devices and returns those for which fits is true.
func offerDevices(self outboard.NodeID, probed []outboard.Device, fits func(outboard.Device) bool) []offeredDevice {
	var all []offeredDevice
	for i, d := range probed {
		d.Node = self
		d.ID = outboard.DeviceID(fmt.Sprintf("%s/%s/%d", self, d.API, i))
		if fits(d) {
			all = append(all, offeredDevice{Device: d, index: i})
		}
	}
	return all
}
