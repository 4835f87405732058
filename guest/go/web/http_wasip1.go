package web

// isHTTP has the host know that the module's entry takes HTTP messages, so that the manifest need
// not say so.
//
//go:wasmexport outboard_http
func isHTTP() {}
