package web

// For tests of package web_test.
var (
	DetectType  = detectType
	ParseTarget = parseTarget
)
