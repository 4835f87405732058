// Package session is one program's live use of one leased device, as bytes: the
// messages that cross a ring, the table of the objects that they name, and the
// log from which the session could be rebuilt. It knows no API; what a message
// means is the business of the code that an API's description generates.
//
// docs/design/0001 is the specification of headers, bodies and bulk.
//
// A Reader and a Table belong to one goroutine. A Writer may be shared.
// Everything that a Reader returns is valid until the Reader's next call of the
// same kind: a body until Next, a bulk piece until NextBulk or Next.
package session
