package outboard_test

import (
	"testing"

	"github.com/outboard-run/outboard"
)

func TestParseBytes(t *testing.T) {
	for text, want := range map[string]outboard.Bytes{
		"0": 0, "1048576": 1 << 20, "1B": 1, "2GiB": 2 << 30, "2 GiB": 2 << 30, " 512M ": 512 << 20, "1.5GiB": 3 << 29,
		"1kB": 1000, "3TB": 3e12, "18446744073709551615": 1<<64 - 1, "1e3": 1000,
	} {
		got, err := outboard.ParseBytes(text)
		if err != nil || got != want {
			t.Errorf("%q: got %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GiB", "-1", "-1GiB", "1XB", "NaN", "Inf", "20000000TiB", "1 2", "0x"} {
		if got, err := outboard.ParseBytes(text); err == nil {
			t.Errorf("%q: got %d, want an error", text, got)
		}
	}
}

func TestBytesString(t *testing.T) {
	for size, want := range map[outboard.Bytes]string{
		0: "0B", 1023: "1023B", 1024: "1KiB", 1536: "1.5KiB", 8 << 30: "8GiB", 1<<20 - 1: "1MiB", 1<<64 - 1: "16384PiB",
	} {
		if got := size.String(); got != want {
			t.Errorf("%d: got %q, want %q", uint64(size), got, want)
		}
	}
}

// A size prints as one that reads as nearly the same.
func FuzzParseBytes(f *testing.F) {
	for _, text := range []string{"0", "1", "2GiB", "1.5M", "1e3kB", "18446744073709551615", "-1", "NaN", "0x1p4", "1023.96KiB"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		size, err := outboard.ParseBytes(text)
		if err != nil {
			return
		}
		again, err := outboard.ParseBytes(size.String())
		if err != nil {
			t.Fatalf("%q is %d, prints as %q, which is refused: %v", text, uint64(size), size, err)
		}
		if ratio := (float64(again) + 1) / (float64(size) + 1); ratio < 0.94 || ratio > 1.06 {
			t.Errorf("%q is %d, prints as %q, which is %d", text, uint64(size), size, uint64(again))
		}
	})
}
