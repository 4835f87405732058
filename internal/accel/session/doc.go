// Package session implements the messages of a session, which is one program's use of one leased
// device: the messages in a ring, the table of the objects that they name, and the log from which
// the session could be rebuilt. It is independent of the API; the code that is generated from an
// API's description interprets the messages.
//
// docs/design/0001 is the specification of headers, bodies and bulk.
//
// A Reader and a Table may be used by one goroutine only, a Writer by several. Everything that a
// Reader returns is valid until the Reader's next call of the same kind: a body until Next, a bulk
// piece until NextBulk or Next.
package session
