package cli

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/outboard-run/outboard/internal/accel/calibrate"
	"github.com/outboard-run/outboard/internal/accel/overhead"
)

// calibrationFile is the file in the data folder in which `outboard calibrate` stores its
// measurements.
const calibrationFile = "calibration.json"

// calibration is the content of that file.
type calibration struct {
	Measured time.Time `json:"measured"`
	Cores    int       `json:"cores"`
	// RTT is the network's round trip during the measurement, 0 for none.
	RTT       time.Duration      `json:"rtt_ns"`
	Constants overhead.Constants `json:"constants"`
	// Speeds are the speeds of the measured devices.
	Speeds []deviceSpeed `json:"device_speeds,omitempty"`
}

// deviceSpeed is the speed of a device of the pool or, if Device is empty, of this machine's own
// driver.
type deviceSpeed struct {
	Device string `json:"device,omitempty"`
	calibrate.Speed
}

// maxCalibration bounds the file.
const maxCalibration = 64 << 10

// readConstants returns the constants of this machine's calibration; os.ErrNotExist if there is
// none.
func readConstants(data string) (overhead.Constants, error) {
	c, err := readCalibration(data)
	return c.Constants, err
}

// readCalibration returns this machine's calibration; os.ErrNotExist if there is none.
func readCalibration(data string) (calibration, error) {
	path := filepath.Join(data, calibrationFile)
	info, err := os.Stat(path)
	if err != nil {
		return calibration{}, err
	}
	if info.Size() > maxCalibration {
		return calibration{}, fmt.Errorf("%s has %d bytes: run `outboard calibrate` again", path, info.Size())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return calibration{}, err
	}
	c := calibration{Constants: overhead.DefaultConstants()} // defaults for an older file
	if err := json.Unmarshal(text, &c); err != nil {
		return calibration{}, fmt.Errorf("%s: %w: run `outboard calibrate` again", path, err)
	}
	return c, nil
}

// writeConstants replaces the calibration of this machine.
func writeConstants(data string, c *calibration) error {
	text, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(data, calibrationFile)
	if err := os.WriteFile(path+".new", append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
