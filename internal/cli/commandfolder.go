package cli

import (
	"os"

	"github.com/outboard-run/outboard/internal/datadir"
)

// rootFolder has the files of root's commands where the node belongs to another user.
const rootFolder = "/var/cache/outboard"

// commandFolder returns the folder in which commands keep their files: the driver library, recordings,
// the measurements of calibration. It is the node's data folder. Root has one of its own where that
// belongs to another user, such as that of the Debian package's service: root's programs must
// not execute what that user may write, and root must not write where that user may place links.
func (env *Env) commandFolder() string {
	if owner, err := datadir.Owner(env.config.data); err == nil && owner != 0 && os.Geteuid() == 0 {
		return env.RootFolder
	}
	return env.config.data
}

// prepareFolders creates the data folder and that of commands if they do not exist, and refuses
// those in which another user could place a node's socket or a driver library. Root may use the node
// of any user.
func (env *Env) prepareFolders() error {
	if err := os.MkdirAll(env.config.data, 0o700); err != nil {
		return err
	}
	if _, err := datadir.Owner(env.config.data); err != nil {
		return err
	}
	folder := env.commandFolder()
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	return datadir.Check(folder)
}
