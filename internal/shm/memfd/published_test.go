package memfd

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
)

// Other processes see what the publisher writes, and cannot write themselves.
func TestPublishedIsReadOnlyForOthers(t *testing.T) {
	f, memory, err := NewPublished("t", size)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer Unmap(memory)
	seen, err := MapPublished(f, size)
	if err != nil {
		t.Fatal(err)
	}
	defer Unmap(seen)
	memory[7] = 9
	if seen[7] != 9 {
		t.Error("a reader does not see what was written")
	}
	if _, err := f.WriteAt([]byte("x"), 0); !errors.Is(err, unix.EPERM) {
		t.Errorf("WriteAt = %v, want EPERM", err)
	}
	if m, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_WRITE, unix.MAP_SHARED); !errors.Is(err, unix.EPERM) {
		Unmap(m)
		t.Errorf("a mapping for writing: %v, want EPERM", err)
	}
	if err := unix.Mprotect(seen, unix.PROT_READ|unix.PROT_WRITE); !errors.Is(err, unix.EACCES) {
		t.Errorf("a mapping made writable: %v, want EACCES", err)
	}
}

func TestMapPublishedRefuses(t *testing.T) {
	for name, seals := range map[string]int{"no seals": 0, "can shrink": unix.F_SEAL_GROW} {
		if m, err := MapPublished(unsealed(t, seals), size); outboard.KindOf(err) != outboard.Protocol {
			Unmap(m)
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	if m, err := MapPublished(unsealed(t, sizeSeals), size/2); outboard.KindOf(err) != outboard.Protocol {
		Unmap(m)
		t.Errorf("of another size: %v, want a refusal", err)
	}
}
