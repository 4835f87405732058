package grpcconn

import "encoding/binary"

// responses are the messages that a handler has sent and that may not have left the server. It finds
// their ends in the frames: grpc-go does not report them, and it may have compressed a message.
type responses struct {
	head [messageHead]byte
	have int // bytes of head
	left int // bytes of the message that follow

	added, complete int64
	held            []response // those of which bytes count
}

// A response is the message with an index and the bytes that count for it.
type response struct {
	index, bytes int64
}

// add adds a message of which n bytes count.
func (r *responses) add(n int64) {
	if n > 0 {
		r.held = append(r.held, response{r.added, n})
	}
	r.added++
}

// sent processes bytes that are sent, and returns how many bytes of messages no longer count.
func (r *responses) sent(b []byte) (freed int64) {
	for len(b) > 0 {
		if r.have < messageHead {
			k := copy(r.head[r.have:], b)
			r.have, b = r.have+k, b[k:]
			if r.have < messageHead {
				return freed
			}
			r.left = int(binary.BigEndian.Uint32(r.head[1:]))
		}
		k := min(r.left, len(b))
		r.left, b = r.left-k, b[k:]
		if r.left == 0 {
			r.have = 0
			freed += r.completeOne()
		}
	}
	return freed
}

// completeOne records that a message is sent, and returns the bytes that counted for it.
func (r *responses) completeOne() (freed int64) {
	if len(r.held) > 0 && r.held[0].index == r.complete {
		freed, r.held = r.held[0].bytes, r.held[1:]
	}
	r.complete++
	return freed
}
