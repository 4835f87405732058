// Package egress sends the outgoing HTTP requests of apps: to hosts of an allow-list, and to no
// private address unless the operator allows it.
//
// # Rules
//
// A request is sent only if the app's allow-list has its host and port ([Host]). The name is
// resolved for each connection, and the connection is made to the address that was checked, so a
// name that resolves to another address later (DNS rebinding) gains nothing. An address that is
// not globally reachable (IANA's special-purpose registries, RFC 6890), and each address of this
// machine, is refused, unless two parties allow it: the app's entry is private, and the
// operator lists the address (Options.Private). An address of this machine has to be listed with
// its port, so that a wide prefix never opens the node's own ports.
//
// Environment variables for proxies are ignored, because a proxy would resolve the name.
//
// # Limits
//
// Options.InFlight bounds the requests of all apps. A response's header has 64 KiB at most; its
// body is a stream that the caller bounds.
package egress
