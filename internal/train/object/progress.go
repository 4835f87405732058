package object

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

const (
	// silenceLimit is how long a request waits while no bytes move.
	silenceLimit = 30 * time.Second
	// maxBuffered is how many bytes the kernel may hold that have been written and not sent. A link that
	// is no slower than slowestLink, in bytes per second, needs that much longer for them.
	maxBuffered = 4 << 20
	slowestLink = 128 << 10
)

// errSilent says that a request has ended because no bytes moved.
var errSilent = errors.New("the server does not reply")

// A progress ends a request when no bytes of it have moved for its limit.
type progress struct {
	ctx   context.Context //nolint:containedctx // of the request
	limit time.Duration
	timer *time.Timer
	end   context.CancelCauseFunc
}

// watchProgress returns the context of a request whose body has size bytes.
func watchProgress(ctx context.Context, size int) (context.Context, *progress) {
	p := &progress{limit: silenceLimit + time.Duration(min(size, maxBuffered))*time.Second/slowestLink}
	p.ctx, p.end = context.WithCancelCause(ctx)
	p.timer = time.AfterFunc(p.limit, func() { p.end(errSilent) })
	return p.ctx, p
}

func (p *progress) stop() {
	p.timer.Stop()
	p.end(nil)
}

// addTo watches the body of a request.
func (p *progress) addTo(r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	r.Body = p.reader(r.Body)
	again := r.GetBody
	r.GetBody = func() (io.ReadCloser, error) {
		body, err := again()
		if err != nil {
			return nil, err
		}
		return p.reader(body), nil
	}
}

// reader returns a body whose bytes count as progress.
func (p *progress) reader(body io.ReadCloser) io.ReadCloser { return &watchedBody{body, p} }

// explain returns the error of a request, with the reason if the request has made no progress.
func (p *progress) explain(err error) error {
	if errors.Is(context.Cause(p.ctx), errSilent) {
		return fmt.Errorf("%w: no bytes have moved for %v", errSilent, p.limit)
	}
	return err
}

// A watchedBody is a body of a request or a response.
type watchedBody struct {
	io.ReadCloser
	progress *progress
}

func (b *watchedBody) Read(buf []byte) (int, error) {
	n, err := b.ReadCloser.Read(buf)
	if n > 0 && b.progress.ctx.Err() == nil {
		b.progress.timer.Reset(b.progress.limit)
	}
	return n, err
}
