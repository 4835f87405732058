// Package transit moves streams from one way to their callee to another while
// messages flow: what lies between (a process that is replaced, a connection that is
// given up) need not stay for them, and keeps nothing.
//
// # How
//
// A stream that may move has a name, which its caller chooses and tells in the head.
// To move it the caller opens a second leg by the new way: a call of the same method
// whose head says that it continues the stream of that name. The callee that has the
// stream accepts it with the header. From then on the caller sends by the new leg, and
// closes its side of the old one; the callee sends by the new leg too, and ends the
// old one with OK and a word in the trailer once it has read it to the end. Each side
// reads the old leg to its end before the new one. So each direction's messages pass
// the old leg, then the new one, in order, none twice and none lost; nobody waits for
// anybody, and nothing is resent. Until the callee has accepted, the stream goes on as
// it is: a move that fails costs nothing. What lies on the old leg is read at once, so
// that a slow reader does not keep it alive; that is at most what its windows hold.
//
// # Who moves
//
// A [Fleet] is the streams of one connection; [Fleet.Move] moves them all, each by its
// own [Way]. A [Caller] may be the caller itself or stand in the middle, and several of
// them on a stream's way may move at the same time. Each leg has a place: how often
// each of them has moved, the one nearest to the caller first. A callee accepts only a
// leg whose place is after that of the current one, and only one at a time; so two
// moves that cross can't bring messages out of order.
//
// # Who may
//
// A callee accepts a leg only from whom the stream is (tenant, peer and method), and by
// its name, which has 128 bits that nobody can guess. A name that it does not know is
// refused and never begins a call.
//
// fabric/PROTOCOL.md has the words.
package transit
