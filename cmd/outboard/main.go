// Outboard lends the accelerators of many machines to programs that run on
// others. See `outboard --help`.
package main

import (
	"os"

	"github.com/outboard-run/outboard/internal/cli"
)

func main() { os.Exit(cli.Main()) }
