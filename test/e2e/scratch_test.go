package e2e

import "os"

// scratch is a folder for what all tests share; TestMain removes it.
func scratch() string { return scratchDir }

var scratchDir = func() string {
	dir, err := os.MkdirTemp("", "outboard-e2e-")
	if err != nil {
		panic(err)
	}
	return dir
}()
