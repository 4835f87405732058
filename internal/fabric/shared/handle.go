package shared

import "github.com/outboard-run/outboard/fabric/call"

// Handle makes h serve the peer's calls in place of Options.Handler, which must not
// be nil. Only the function that [Listener.Serve] asks may call it: before the
// connection begins to serve.
func (c *Conn) Handle(h call.Handler) {
	c.callee.handler = h
	c.callee.unary, _ = h.(call.UnaryHandler)
}
