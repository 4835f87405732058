// Package datadir names the data folder of this machine's node and the sockets in it.
package datadir

import (
	"fmt"
	"os"
	"path/filepath"
)

// CallsSocket is the name of the socket in a node's data folder where programs
// connect to make and to serve calls.
const CallsSocket = "calls.sock"

// Default returns the data folder of a node that was started without --data: /var/lib/outboard for
// root, otherwise below the user's state folder.
func Default() string {
	if os.Geteuid() == 0 {
		return "/var/lib/outboard"
	}
	if state := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(state) {
		return filepath.Join(state, "outboard")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return filepath.Join(os.TempDir(), fmt.Sprintf("outboard-%d", os.Geteuid()))
	}
	return filepath.Join(home, ".local", "state", "outboard")
}
