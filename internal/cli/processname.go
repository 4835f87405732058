package cli

import (
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// nameProcess names a helper process in what ps and top show. The kernel calls it after the link by which
// its node started it: exe, or the number of a descriptor. In a sandbox, whose /proc can't be written, it
// keeps that name.
func nameProcess(cmd *cobra.Command) {
	_ = os.WriteFile("/proc/self/comm", []byte(processName(cmd.Name())), 0)
}

// processName returns the name of the process of a helper's command. The kernel keeps 15 bytes.
func processName(command string) string {
	word, _, _ := strings.Cut(command, "-")
	return "outboard-" + word
}
