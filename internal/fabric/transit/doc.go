// Package transit moves open streams from one path to another while messages flow. The old path (a
// process that is replaced, a connection that is drained) may then end, and holds no state of the
// stream.
//
// # Protocol
//
// A stream that can move has a name, which its caller chooses and sends in the head. To move
// the stream the caller opens a second leg on the new path: a call of the same method whose head
// says that it continues the stream of that name. The callee that serves the stream accepts the
// leg with its header. From then on the caller sends on the new leg, and half-closes the old
// one. The callee sends on the new leg too, and ends the old one with OK and a mark in the
// trailer once it has read the leg to its end. Each side reads the old leg to its end before the
// new one. So the messages of each direction pass the old leg, then the new one, in order: none
// is lost, duplicated or sent again, and neither side waits for the other. Until the callee has
// accepted, the stream stays on its leg: a move that fails costs nothing. Messages on the old
// leg are read at once, so that a slow reader does not keep the leg open; the flow-control
// windows of the leg bound them.
//
// # Concurrent moves
//
// A [StreamSet] is the streams of one connection; [StreamSet.Move] moves them all, each by its own
// [OpenFunc]. A [Caller] is the stream's caller or a proxy between caller and callee, and several
// of them on the path of a stream may move it at the same time. Each leg has a position: how often
// each Caller has moved the stream, beginning with the Caller nearest to the stream's caller. A
// callee accepts a leg only if its position is after that of the current leg, and one leg at a
// time; so two concurrent moves can't reorder messages.
//
// # Authorization
//
// A callee accepts a leg only from the tenant and the peer that began the stream, for the same
// method, and by its name, which has 128 random bits. An unknown name is refused, and never
// begins a call.
//
// fabric/PROTOCOL.md specifies the metadata.
package transit
