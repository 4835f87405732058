package cli

import "testing"

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
	for _, text := range []string{"", "require", "require=walls", "call=open", "color=red"} {
		if new(sandboxFlag).Set(text) == nil {
			t.Errorf("%q was accepted", text)
		}
	}
}
