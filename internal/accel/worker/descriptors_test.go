package worker

import (
	"context"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The process of a compile step inherits no descriptors. Descriptors that it did not open, such as
// those of the Go runtime's poller, must remain open when the garbage collector runs.
func TestStepClosesNoDescriptors(t *testing.T) {
	t.Setenv(stepVariable, "1")
	stdin, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	os.Stdin, stdin = stdin, os.Stdin
	defer func() { os.Stdin, stdin = stdin, os.Stdin }()
	open := func(fd uintptr) bool {
		_, err := unix.FcntlInt(fd, unix.F_GETFD, 0)
		return err == nil
	}
	before := map[uintptr]bool{}
	for _, fd := range []uintptr{ringDescriptor, controlDescriptor, recipesDescriptor} {
		before[fd] = open(fd)
	}
	if err := Main(context.Background()); err == nil {
		t.Fatal("a step without a recipe succeeded")
	}

	collected := make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(struct{}) { close(collected) }, struct{}{})
	runtime.GC()
	<-collected
	for fd, was := range before {
		if was && !open(fd) {
			t.Errorf("descriptor %d was closed", fd)
		}
	}
}
