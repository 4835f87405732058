package web

import "net/url"

// ParseTarget is parseTarget.
func ParseTarget(target string) (*url.URL, error) { return parseTarget(target, &url.URL{}) }

// For tests of package web_test.
var (
	DetectType = detectType
)
