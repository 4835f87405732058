package cli

import "io"

// What tests in package cli_test use of this package.
var (
	DemoTrace       = demoTrace
	CalibrationFile = calibrationFile
)

// NewCompletionWriter returns the writer of completions.
func NewCompletionWriter(w io.Writer) io.Writer { return completionWriter{w} }
