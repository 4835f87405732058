package cli

import (
	"errors"
	"reflect"
	"testing"

	"github.com/outboard-run/outboard/internal/accel/lend"
)

func TestSandboxFlag(t *testing.T) {
	var f, again sandboxFlag
	for _, text := range []string{"require=mounts,seccomp;env=MY_DRIVER", "device=/dev/npu*", "read=/srv/driver", "call=250"} {
		if err := f.Set(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := again.Set(f.String()); err != nil {
		t.Fatal(err)
	}
	for _, s := range []sandboxFlag{f, again} {
		if b := s.sandbox; len(b.Require) != 2 || b.Environ[0] != "MY_DRIVER" || b.Devices[0] != "/dev/npu*" || b.Readable[0] != "/srv/driver" || b.Calls[0] != 250 {
			t.Errorf("got %+v", b)
		}
	}
	for _, text := range []string{"require", "require=walls", "call=open", "color=red", "cache=0", "cache=1MiB", "cache=much"} {
		if new(sandboxFlag).Set(text) == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}

// An empty text forgets the settings of the last start.
func TestSandboxIsForgotten(t *testing.T) {
	var f sandboxFlag
	if err := errors.Join(f.Set("require=seccomp"), f.Set("")); err != nil || f.String() != "" || f.sandbox.Require != nil {
		t.Errorf("got %q, %+v, %v", f.String(), f.sandbox, err)
	}
}

// Caches have a size, the default, or none.
func TestSandboxCache(t *testing.T) {
	for text, want := range map[string]lend.Sandbox{
		"cache=64MiB": {Cache: 64 << 20}, "cache=off": {NoCache: true}, "cache=off;cache=1GiB": {Cache: 1 << 30}, "env=A": {Environ: []string{"A"}},
	} {
		var f sandboxFlag
		if err := f.Set(text); err != nil || !reflect.DeepEqual(f.sandbox, want) {
			t.Errorf("%s: got %+v, %v, want %+v", text, f.sandbox, err, want)
		}
	}
}
