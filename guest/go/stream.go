package guest

import "io"

// A Stream is a request that is received, and its response that is sent, while the function runs,
// both at the client's pace. So neither has to fit into memory:
//
//	func init() { guest.HandleStream(digest) }
//
//	func digest(s *guest.Stream) error {
//		hash := sha256.New()
//		if _, err := io.Copy(hash, s); err != nil {
//			return err
//		}
//		_, err := fmt.Fprintf(s, "%x\n", hash.Sum(nil))
//		return err
//	}
//
// HTTP requests with a body of more than 32 KiB are streamed, all others are passed as a whole. The
// manifest's `request` limits the body, `response` the response. The time in which the function
// waits for its client does not count towards its deadline.
type Stream struct {
	request []byte // the part that came with the call
	out     []byte // the part of the response not sent yet
}

// partSize is the size of the parts in which a response is sent.
const partSize = 32 << 10

// HandleStream registers a handler that reads its request and writes its response in parts. If it
// returns an error before it has written 32 KiB of the response, the error is the response; later
// the client's connection is cut.
func HandleStream(h func(s *Stream) error) {
	Handle(func(request []byte) ([]byte, error) {
		s := Stream{request: request}
		if err := h(&s); err != nil {
			return nil, err
		}
		return s.out, nil
	})
}

// Read reads the next part of the request; io.EOF is its end. Another error means that the client
// sent too much, was too slow, or left.
func (s *Stream) Read(b []byte) (int, error) {
	if len(s.request) > 0 || len(b) == 0 {
		n := copy(b, s.request)
		s.request = s.request[n:]
		return n, nil
	}
	return ReadMore(b)
}

// Write appends to the response, and sends it in parts of 32 KiB.
func (s *Stream) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; {
		n := min(len(rest), partSize-len(s.out))
		s.out, rest = append(s.out, rest[:n]...), rest[n:]
		if len(s.out) == partSize {
			if err := s.Flush(); err != nil {
				return len(b) - len(rest), err
			}
		}
	}
	return len(b), nil
}

// Flush sends the buffered response. It waits for a client that reads slowly.
func (s *Stream) Flush() error {
	err := Send(s.out)
	s.out = s.out[:0]
	return err
}

var _ io.ReadWriter = (*Stream)(nil)

// ReadMore reads the part of the request that follows the handler's argument; io.EOF is its end.
// Stream and package web use it and Send.
func ReadMore(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	return hostBodyRead(b)
}

// Send sends a part of the response. The handler's result follows it.
func Send(b []byte) error { return hostSend(b) }
