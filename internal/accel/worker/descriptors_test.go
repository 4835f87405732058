package worker

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// stepArgument makes this program a compile step that looks at its descriptors.
const stepArgument = "test-step-descriptors"

// The process of a compile step inherits no descriptors. Descriptors that it did not open, such as
// those of the Go runtime's poller, must remain open when the garbage collector runs. The step has a
// process of its own, in which nothing else closes descriptors.
func TestStepClosesNoDescriptors(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0], stepArgument) // its standard input is /dev/null: no recipe
	cmd.Env = append(os.Environ(), stepVariable+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// stepDescriptors executes a step without a recipe and returns the exit status of this process.
func stepDescriptors() int {
	descriptors := []int{ringDescriptor, controlDescriptor, recipesDescriptor}
	for _, fd := range descriptors {
		if !isOpen(fd) {
			if err := unix.Dup2(0, fd); err != nil {
				fmt.Println("opening descriptor", fd, "failed:", err)
				return 1
			}
		}
	}
	if err := Main(context.Background()); err == nil {
		fmt.Println("a step without a recipe succeeded")
		return 1
	}
	collected := make(chan struct{})
	runtime.AddCleanup(new([64]byte), func(struct{}) { close(collected) }, struct{}{})
	runtime.GC()
	<-collected
	for _, fd := range descriptors {
		if !isOpen(fd) {
			fmt.Println("descriptor", fd, "was closed")
			return 1
		}
	}
	return 0
}

func isOpen(fd int) bool {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	return err == nil
}
