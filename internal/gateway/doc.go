// Package gateway starts the functions and workflows of apps, by HTTP routes, WebSockets, subjects
// and schedules.
//
// # The model
//
// A Gateway has the apps' routes and triggers in a table that SetApps replaces as a whole. Every
// request, message, event and tick becomes a Call, and an Invoker answers it: the gateway does not
// depend on the planes that run functions and workflows. Calls of the same app are recorded in one
// ring, which Logs reads and Follow waits on.
//
// # HTTP
//
// The first segment of a path names the app; the rest is matched against its routes with the
// patterns and the precedence of net/http. A route leads to
//   - a plain function: it gets the body and its answer is the body,
//   - an HTTP function: it gets one HTTP/1.1 request message, with the path that is
//     left without the app and with X-Forwarded-Prefix, and answers with one response
//     message, which is checked before anything of it is sent,
//   - a function that streams: it reads a large body itself and may send its response in
//     parts,
//   - a workflow: it gets the body as input. The answer is its output, or, for a
//     route that does not wait, its execution's name with the status 202,
//   - a function that takes the events of a WebSocket.
//
// Connections are served by the gateway itself as long as their requests are plain: of a strict,
// unambiguous subset of HTTP/1.1. The first other request of a connection and all later ones are
// left to net/http. Handlers don't see which of the two it was.
//
// Errors are answered with a problem document (RFC 9457). A call's trace is W3C's: it goes on with
// the request's traceparent or begins one.
//
// # WebSockets
//
// Each event of a connection is a call with the names "ws.event" ("open", "message", "close") and
// "ws.id" in its Meta; the events of one connection come one after another. The answer is empty or
// JSON:
//
//	{"send": [{"to": "room:NAME" or "id:ID" or "self", "text": "..."}],
//	 "join": ["NAME"], "leave": ["NAME"], "close": false}
//
// The gateway first leaves and joins rooms, then sends, then closes. Rooms belong to an app; the
// Bus connects their members on different nodes.
//
// # Lifecycle and concurrency
//
// All methods may be used by many goroutines. ServeHTTP and Invoke work from New on; ServeConn,
// subjects and schedules while Run runs. When Run's context ends, the gateway accepts no more
// requests, and accepted requests finish within Options.Grace.
package gateway
