package cli

import (
	"fmt"
	"time"
)

// silenceLimit is the time after which a command reports its activity on a terminal.
const silenceLimit = 2 * time.Second

// reportIfSlow prints the activity of a command on a terminal if it lasts longer than silenceLimit.
// It prints nothing after stop has returned.
func (env *Env) reportIfSlow(format string, args ...any) (stop func()) {
	if !env.Terminal {
		return func() {}
	}
	printed := make(chan struct{})
	timer := time.AfterFunc(silenceLimit, func() {
		defer close(printed)
		fmt.Fprintf(env.Stderr, format+" ...\n", args...)
	})
	return func() {
		if !timer.Stop() {
			<-printed
		}
	}
}
