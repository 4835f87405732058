package cli

// What tests in package cli_test use of this package.
var (
	DemoTrace       = demoTrace
	CalibrationFile = calibrationFile
)
