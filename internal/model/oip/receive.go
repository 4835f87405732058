package oip

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/outboard-run/outboard/internal/fabric/buffers"
	"github.com/outboard-run/outboard/internal/model/serve"
)

// A refusal is the error of a request that is refused before its body has been read to its end.
type refusal struct {
	error
	begun bool // a part of the body has been read
}

// receive reads a request for target in up to three steps, and asks before each of the later ones
// whether the model would refuse the request: the header, the JSON, and the binary tensors, which
// are nearly all bytes of a large request. The error of such a request is a refusal.
func (h *Handler) receive(w http.ResponseWriter, r *http.Request, target *serve.Request) (*parsedRequest, error) {
	if err := h.opts.Models.Refuse(target, 0); err != nil {
		return nil, &refusal{err, false}
	}
	length := r.Header.Get(lengthHeader)
	if length == "" || r.ContentLength < 0 || r.ContentLength > h.opts.MaxBody {
		body, err := readBody(w, r, h.opts.MaxBody)
		if err != nil {
			return nil, err
		}
		return parseInfer(body, length)
	}
	if err := checkEncoding(r); err != nil {
		return nil, err
	}
	n, err := parseLength(length, r.ContentLength)
	if err != nil {
		return nil, err
	}
	in := http.MaxBytesReader(w, r.Body, h.opts.MaxBody)
	text, err := readAll(io.LimitReader(in, n), n)
	if err != nil {
		return nil, err
	}
	q, err := parseHead(text)
	if err != nil {
		return nil, err
	}
	if err := h.refuseParsed(q, *target); err != nil {
		return nil, err
	}
	return q, h.readTensors(in, r.ContentLength-n, q)
}

// maxReused bounds the bytes of binary tensors that are read into memory of earlier requests. All of
// that is taken before the first byte has arrived.
const maxReused = 16 << 20

// readTensors reads the binary tensors of a request, which are size bytes. The memory of large ones is
// reused: from the heap it would have to be cleared, and make garbage of the size of all requests.
func (h *Handler) readTensors(in io.Reader, size int64, q *parsedRequest) (err error) {
	if size < buffers.MinPooled || size > maxReused {
		q.binary, err = readAll(in, size)
		return err
	}
	buffer := h.tensors.Get(int(size))
	if _, err := io.ReadFull(in, buffer.Data[:size]); err != nil {
		h.tensors.Put(buffer)
		return errBody(err)
	}
	q.binary, q.buffer = buffer.Data[:size], buffer
	return nil
}

// refuseParsed refuses a request by its parameters and shapes.
func (h *Handler) refuseParsed(q *parsedRequest, target serve.Request) error {
	if err := readPolicy(q.Parameters, &target); err != nil {
		return err
	}
	if err := readSequence(q.Parameters, &target.Sequence); err != nil {
		return err
	}
	rows := 1
	if len(q.Inputs) > 0 && len(q.Inputs[0].Shape) > 0 {
		rows = int(max(1, min(q.Inputs[0].Shape[0], maxRows)))
	}
	if err := h.opts.Models.Refuse(&target, rows); err != nil {
		return &refusal{err, true}
	}
	return nil
}

// maxRows bounds the rows for which an execution time is estimated.
const maxRows = 1 << 30

// maxUnread is the most bytes of a refused request's body that are read and discarded, after the
// response, so that the connection can serve further requests.
const maxUnread = 1 << 20

// AnswerUnread has answer respond to a request before its body is read, and discards the body
// afterwards. By default net/http reads up to 256 KiB of the body before it sends the response. The
// connection ends after a request that has more than maxUnread bytes or an unknown number of them,
// or whose client waits for the status 100 before it sends them.
func AnswerUnread(w http.ResponseWriter, r *http.Request, answer func(http.ResponseWriter)) {
	answerUnread(w, r, r.Header.Get("Expect") != "", answer)
}

// answerUnread is AnswerUnread for a body that may have been read in part. waits reports whether the
// client waits for the status 100.
func answerUnread(w http.ResponseWriter, r *http.Request, waits bool, answer func(http.ResponseWriter)) {
	if r.ContentLength == 0 {
		answer(w)
		return
	}
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // a recorder in a test has none, nor needs it
	ends := waits || r.ContentLength < 0 || r.ContentLength > maxUnread
	if ends {
		w.Header().Set("Connection", "close")
	}
	held := &heldAnswer{ResponseWriter: w, status: http.StatusOK}
	answer(held)
	held.send()
	_ = control.Flush() // the client may have disconnected
	switch {
	case waits:
		_ = control.SetReadDeadline(time.Now()) // net/http would wait for the body
	case ends:
	default:
		if _, err := io.CopyN(io.Discard, r.Body, maxUnread+1); !errors.Is(err, io.EOF) {
			// The connection ends. Otherwise the rest of the body would be parsed as a request.
			panic(http.ErrAbortHandler) //nolint:forbidigo // net/http closes the connection
		}
	}
}

// A heldAnswer holds a response until send, which knows its length: the client would wait for the
// end of a response of unknown length.
type heldAnswer struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

// WriteHeader implements http.ResponseWriter.
func (a *heldAnswer) WriteHeader(status int) { a.status = status }

// Write implements http.ResponseWriter.
func (a *heldAnswer) Write(b []byte) (int, error) { return a.body.Write(b) }

func (a *heldAnswer) send() {
	a.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	a.ResponseWriter.WriteHeader(a.status)
	_, _ = a.ResponseWriter.Write(a.body.Bytes()) // the client may have disconnected
}
