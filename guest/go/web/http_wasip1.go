package web

// isHTTP tells the host that the module's entry takes HTTP messages, so that the manifest
// does not need `http: true`.
//
//go:wasmexport outboard_http
func isHTTP() {}
