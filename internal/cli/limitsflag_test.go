package cli

import "testing"

// What the flag prints is what it reads: the node remembers its settings so.
func TestLimitsFlag(t *testing.T) {
	var f, again limitsFlag
	if err := f.Set("arenas=8GiB; logs=16MiB"); err != nil {
		t.Fatal(err)
	}
	if err := again.Set(f.String()); err != nil || again.String() != f.String() || len(again.limits) != 2 {
		t.Errorf("%q is read again as %q (%v)", f.String(), again.String(), err)
	}
	if f.Set("sails=2") == nil {
		t.Error("an unknown kind was accepted")
	}
}
