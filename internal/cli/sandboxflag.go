package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/accel/lend"
	"github.com/outboard-run/outboard/internal/sandbox"
)

// sandboxFlag is the value of --sandbox: settings KEY=VALUE with semicolons between.
type sandboxFlag struct {
	settings []string
	sandbox  lend.Sandbox
}

// Set adds settings. Set, String and Type implement pflag.Value.
func (f *sandboxFlag) Set(text string) error {
	if text == "" { // as `outboard up` is told to forget the settings of its last start
		*f = sandboxFlag{}
		return nil
	}
	for setting := range strings.SplitSeq(text, ";") {
		if err := f.add(strings.TrimSpace(setting)); err != nil {
			return err
		}
		f.settings = append(f.settings, strings.TrimSpace(setting))
	}
	return nil
}

func (f *sandboxFlag) add(setting string) error {
	key, value, ok := strings.Cut(setting, "=")
	if !ok || value == "" {
		return fmt.Errorf("%q is not KEY=VALUE", setting)
	}
	switch key {
	case "require":
		list, err := sandbox.ParseMechanisms(value)
		if err != nil {
			return err
		}
		f.sandbox.Require = append(f.sandbox.Require, list...)
	case "read":
		f.sandbox.Readable = append(f.sandbox.Readable, value)
	case "device":
		f.sandbox.Devices = append(f.sandbox.Devices, value)
	case "env":
		f.sandbox.Environ = append(f.sandbox.Environ, value)
	case "call":
		number, err := strconv.ParseUint(value, 10, 32)
		if err != nil {
			return fmt.Errorf("call=%s: want the number of a system call", value)
		}
		f.sandbox.Calls = append(f.sandbox.Calls, uint32(number))
	case "cache":
		return f.setCache(value)
	case "memory":
		if err := f.sandbox.Memory.UnmarshalText([]byte(value)); err != nil {
			return fmt.Errorf("memory=%s: %w", value, err)
		}
	default:
		return fmt.Errorf("unknown setting %q: known are require, read, device, env, call, cache, memory", key)
	}
	return nil
}

// minCache is the least bound of a cache: a driver whose compiled kernels have no room in it ends the
// program, as PoCL does by LLVM's fatal error.
const minCache = 16 << 20

// setCache sets the bound of a program's cache of compiled kernels, or disables the cache.
func (f *sandboxFlag) setCache(value string) error {
	if f.sandbox.NoCache = value == "off"; f.sandbox.NoCache {
		return nil
	}
	if err := f.sandbox.Cache.UnmarshalText([]byte(value)); err != nil || f.sandbox.Cache < minCache {
		return fmt.Errorf("cache=%s: want a size of at least %v, such as 512MiB, or off", value, outboard.Bytes(minCache))
	}
	return nil
}

func (f *sandboxFlag) String() string { return strings.Join(f.settings, ";") }

// Type returns the name of the value in help texts.
func (f *sandboxFlag) Type() string { return "settings" }
