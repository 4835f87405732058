package remote

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/model/engine"
)

// A parts is a stream of parts of a file. After them it fails, or waits for the end of ctx.
type parts struct {
	grpc.ClientStream
	ctx  context.Context //nolint:containedctx // of the stream
	list []string
	err  error
}

func (p *parts) RecvMsg(m any) error {
	if len(p.list) == 0 {
		if p.err == nil {
			<-p.ctx.Done()
			return p.ctx.Err()
		}
		return p.err
	}
	m.(*wrapperspb.BytesValue).Value = []byte(p.list[0]) //nolint:forcetypeassert // the test's
	p.list = p.list[1:]
	return nil
}

// sentParts is the stream to a receiver of a file.
type sentParts struct {
	grpc.ServerStream
	list [][]byte
}

func (s *sentParts) SendMsg(m any) error {
	s.list = append(s.list, m.(*wrapperspb.BytesValue).Value) //nolint:forcetypeassert // the test's
	return nil
}

// A sizedFile is a file of a known size.
type sizedFile struct {
	*os.File
	size int64
}

func (f sizedFile) Size() int64 { return f.size }

// A file is sent in parts behind an empty one. A small file, of which a dataset may have thousands,
// costs no more memory than it has bytes.
func TestPartsOfFiles(t *testing.T) {
	for size, want := range map[int][]int{0: {0}, 100: {0, 100}, filePart: {0, filePart}, filePart + 1: {0, filePart, 1}} {
		name := filepath.Join(t.TempDir(), "file")
		if err := os.WriteFile(name, make([]byte, size), 0o600); err != nil {
			t.Fatal(err)
		}
		s := &Server{Open: func(string) (File, error) {
			f, err := os.Open(name)
			return sizedFile{f, int64(size)}, err
		}}
		var sent sentParts
		if err := s.readFile(wrapperspb.String("sha256:0"), &sent); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
		var got []int
		for _, part := range sent.list {
			if got = append(got, len(part)); cap(part) != len(part) {
				t.Errorf("%d bytes: %d of memory for a part of %d", size, cap(part), len(part))
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d bytes were sent as %v, want %v", size, got, want)
		}
	}
}

func TestFileReader(t *testing.T) {
	list := []string{"a", "", "bc", "def", "g", "h", "i", "j"}
	for name, c := range map[string]struct {
		err  error
		want outboard.Kind
	}{
		"whole": {err: io.EOF},
		"lost":  {err: status.Error(codes.Unavailable, "the node is gone"), want: outboard.Unreachable},
		"none":  {err: status.Error(codes.NotFound, "no such file"), want: outboard.NotFound},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		r := newFileReader(ctx, &parts{ctx: ctx, list: list, err: c.err}, cancel, "ketch")
		text, err := io.ReadAll(r)
		if string(text) != "abcdefghij" || outboard.KindOf(err) != c.want || (err == nil) != (c.err == io.EOF) { //nolint:errorlint // the sentinel itself
			t.Errorf("%s: %q, %v", name, text, err)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: close: %v", name, err)
		}
	}
}

// A reader that is closed early leaves no goroutine, whether the stream has more parts or waits.
func TestFileReaderCloseEarly(t *testing.T) {
	for _, list := range [][]string{nil, {"a"}, {"a", "b", "c", "d", "e", "f", "g", "h"}} {
		ctx, cancel := context.WithCancel(t.Context())
		if err := newFileReader(ctx, &parts{ctx: ctx, list: list}, cancel, "ketch").Close(); err != nil {
			t.Error(err)
		}
		if ctx.Err() == nil {
			t.Error("the stream goes on")
		}
	}
}

// Kinds of errors survive the way between nodes. What the other node has no code for may be tried
// elsewhere, and so may a request that the node refuses: a client must not take that for the refusal
// of its own key.
func TestErrors(t *testing.T) {
	for kind, want := range map[outboard.Kind]outboard.Kind{
		outboard.Invalid: outboard.Invalid, outboard.NotFound: outboard.NotFound, outboard.Exhausted: outboard.Exhausted,
		outboard.Denied: outboard.Unreachable, outboard.Other: outboard.Other, outboard.Unreachable: outboard.Unreachable, outboard.Busy: outboard.Unreachable,
		outboard.NoDevice: outboard.NoDevice,
	} {
		if err := errorOf("ketch", statusOf(outboard.Errorf(kind, "infer", "refused"))); outboard.KindOf(err) != want || engine.IsCrash(err) {
			t.Errorf("%v: %v", kind, err)
		}
	}
	crash := &engine.Crash{Reason: outboard.Errorf(outboard.Unreachable, "", "the process ended")}
	if err := errorOf("ketch", statusOf(crash)); !engine.IsCrash(err) || outboard.KindOf(err) != outboard.Unreachable {
		t.Errorf("a crash: %v", err)
	}
	if err := errorOf("ketch", statusOf(engine.ErrCrashes("infer", "m", crash))); engine.IsCrash(err) || outboard.KindOf(err) != outboard.Other {
		t.Errorf("crashes: %v", err)
	}
	if err := errorOf("ketch", statusOf(nil)); err != nil {
		t.Errorf("no error: %v", err)
	}
	if err := errorOf("ketch", statusOf(context.DeadlineExceeded)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v, want that the deadline has passed", err)
	}
	for err, want := range map[error]codes.Code{context.Canceled: codes.Canceled, context.DeadlineExceeded: codes.DeadlineExceeded} {
		if got := status.Code(statusOf(err)); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}
