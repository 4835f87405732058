package outboard_test

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboard-run/outboard"
)

func TestError(t *testing.T) {
	err := outboard.Errorf(outboard.Busy, "lease x", "held: %w", io.EOF)
	if got, want := err.Error(), "lease x: held: EOF"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if !errors.Is(err, io.EOF) {
		t.Error("the cause is lost")
	}
	if got, want := (&outboard.Error{Op: "lease x", Kind: outboard.LeaseLost}).Error(), "lease x: lease_lost"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := (&outboard.Error{Err: io.EOF}).Error(), "EOF"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestKindOf(t *testing.T) {
	busy := outboard.Errorf(outboard.Busy, "op", "cause")
	for name, tt := range map[string]struct {
		err  error
		want outboard.Kind
	}{
		"nil":       {nil, outboard.Other},
		"plain":     {io.EOF, outboard.Other},
		"direct":    {busy, outboard.Busy},
		"wrapped":   {fmt.Errorf("more: %w", busy), outboard.Busy},
		"joined":    {errors.Join(io.EOF, busy), outboard.Busy},
		"outermost": {&outboard.Error{Kind: outboard.Denied, Err: busy}, outboard.Denied},
	} {
		if got := outboard.KindOf(tt.err); got != tt.want {
			t.Errorf("%s: got %v, want %v", name, got, tt.want)
		}
	}
}

// The kinds' numbers are part of the wire: this list only ever grows.
func TestKindsAreStable(t *testing.T) {
	want := []string{
		"other", "invalid", "not_found", "no_device", "busy", "denied", "lease_lost",
		"unreachable", "session_lost", "protocol", "no_pool", "exhausted", "conflict",
	}
	var got []string
	for k := range outboard.Kind(len(want)) {
		got = append(got, k.String())
	}
	if diff := cmp.Diff(got, want); diff != "" {
		t.Error(diff)
	}
	if got, want := outboard.Kind(999).String(), "kind(999)"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestFreeMemory(t *testing.T) {
	now := time.Unix(1000, 0)
	live, over := now.Add(1), now
	d := outboard.Device{Memory: 10}
	for name, tt := range map[string]struct {
		grants []outboard.Grant
		want   outboard.Bytes
	}{
		"none":      {nil, 10},
		"shared":    {[]outboard.Grant{{Memory: 3, Expires: live}, {Memory: 4, Expires: live}}, 3},
		"expired":   {[]outboard.Grant{{Memory: 3, Expires: over}, {Exclusive: true, Expires: over}}, 10},
		"exclusive": {[]outboard.Grant{{Memory: 1, Expires: live}, {Exclusive: true, Memory: 10, Expires: live}}, 0},
		"too much":  {[]outboard.Grant{{Memory: 11, Expires: live}}, 0},
	} {
		if got := d.FreeMemory(tt.grants, now); got != tt.want {
			t.Errorf("%s: got %d, want %d", name, got, tt.want)
		}
		if got := len(outboard.Live(tt.grants, now)); name == "expired" && got != 0 {
			t.Errorf("%s: %d live grants, want none", name, got)
		}
	}
}
