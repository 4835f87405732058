// Outboard lends the accelerators of many machines to programs that run on other machines. See
// `outboard --help`.
package main

import (
	"os"
	_ "time/tzdata" // schedules name time zones, and not every machine has them

	"github.com/outboard-run/outboard/internal/cli"
)

func main() { os.Exit(cli.Main()) }
