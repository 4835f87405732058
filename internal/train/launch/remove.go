package launch

import (
	"os"

	"github.com/outboard-run/outboard/internal/rmtree"
)

// RemoveFolder removes a folder of ranks, which may have written any tree of files there.
func RemoveFolder(path string) error { return rmtree.Remove(path) }

// RemoveAt removes what ranks have left in a folder that they share with others, by its name there.
func RemoveAt(folder *os.File, name string) error { return rmtree.RemoveAt(folder, name) }
