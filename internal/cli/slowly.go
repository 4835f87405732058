package cli

import (
	"fmt"
	"time"
)

// slow is how long a command may be silent on a terminal.
const slow = 2 * time.Second

// slowly tells who sits at a terminal what a command does, once that takes long. stop
// ends it; afterwards nothing is written any more.
func (env *Env) slowly(format string, args ...any) (stop func()) {
	if !env.Terminal {
		return func() {}
	}
	told := make(chan struct{})
	timer := time.AfterFunc(slow, func() {
		defer close(told)
		fmt.Fprintf(env.Stderr, format+" ...\n", args...)
	})
	return func() {
		if !timer.Stop() {
			<-told
		}
	}
}
