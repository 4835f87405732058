// Package bounded limits the memory that decoding a request may take: a few bytes of JSON or of a
// message of protocol buffers can stand for an element of hundreds of bytes.
package bounded
