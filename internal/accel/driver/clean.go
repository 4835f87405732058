package driver

import (
	"os"
	"path/filepath"
	"strings"
)

// ownMark is contained in the paths that `outboard run` puts into the environment of a
// program.
const ownMark = "outboard"

// vendorVariables are the environment variables from which an OpenCL loader reads the places of
// drivers.
var vendorVariables = []string{"OCL_ICD_VENDORS", "OCL_ICD_FILENAMES", "OPENCL_VENDOR_PATH"}

// Clean removes the variables from the process's environment that would make the system's loader
// load Outboard's own driver library: a worker that served itself would wait for itself. It keeps a
// vendor's path that leads elsewhere.
func Clean() error {
	inside := os.Getenv("OUTBOARD_SOCKET") != ""
	if err := os.Unsetenv("OUTBOARD_SOCKET"); err != nil {
		return err
	}
	for _, name := range vendorVariables {
		if value := os.Getenv(name); value != "" && (inside || pointsToOurLibrary(value)) {
			if err := os.Unsetenv(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// pointsToOurLibrary reports whether value, a path or a folder of .icd files, names Outboard's
// library.
func pointsToOurLibrary(value string) bool {
	for path := range strings.SplitSeq(value, ":") {
		if strings.Contains(strings.ToLower(path), ownMark) {
			return true
		}
		files, _ := filepath.Glob(filepath.Join(path, "*.icd"))
		for _, file := range append(files, path) {
			if strings.HasSuffix(file, ".icd") && icdNamesOurLibrary(file) {
				return true
			}
		}
	}
	return false
}

func icdNamesOurLibrary(file string) bool {
	text, err := os.ReadFile(file)
	return err == nil && strings.Contains(strings.ToLower(string(text)), ownMark)
}
