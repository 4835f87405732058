package node

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/outboard-run/outboard"
)

// zeros is a body of that many bytes.
type zeros int64

func (z *zeros) Read(p []byte) (int, error) {
	if *z == 0 {
		return 0, io.EOF
	}
	n := min(int64(len(p)), int64(*z))
	*z -= zeros(n)
	return int(n), nil
}

// Clients of models can't take the node's memory with many bodies, nor one of them what is for all.
func TestBodiesForModelsAreWeighed(t *testing.T) {
	b := newModelBodies()
	open := func(client string, size zeros) (*http.Request, func()) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v2/models/m/infer", &size)
		return r, b.countBody(r, client, 0)
	}
	read := func(r *http.Request) error {
		_, err := io.Copy(io.Discard, r.Body)
		return err
	}
	first, release := open("a", maxClientBodies)
	if err := read(first); err != nil {
		t.Fatal(err)
	}
	second, releaseSecond := open("a", 3*freeBody)
	if err := read(second); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("beyond what a client may hold: %v", err)
	}
	small, releaseSmall := open("a", freeBody)
	other, releaseOther := open("b", maxClientBodies)
	if err := errors.Join(read(small), read(other)); err != nil {
		t.Errorf("a small body, and another client's: %v", err)
	}
	third, releaseThird := open("c", 6*freeBody)
	if err := read(third); outboard.KindOf(err) != outboard.Busy {
		t.Errorf("beyond what all may hold: %v", err)
	}
	for _, f := range []func(){release, release, releaseSecond, releaseSmall, releaseOther, releaseThird} {
		f()
	}
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held", held)
	}
}

// The values of JSON for text count with what they take when they are decoded.
func TestValuesOfJSONAreCounted(t *testing.T) {
	b := newModelBodies()
	body := `{"messages":[` + strings.Repeat(`{},`, freeBody) + `{}]}`
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/chat/completions", iotest.HalfReader(strings.NewReader(body)))
	release := b.countBody(r, "a", valueSize)
	if _, err := io.Copy(io.Discard, r.Body); err != nil {
		t.Fatal(err)
	}
	if want := int64(len(body)) + valueSize*2*(freeBody+1) - freeBody; b.Held() < want || b.Held() > want+10*valueSize {
		t.Errorf("%d bytes are held, want %d", b.Held(), want)
	}
	release()
	if held := b.Held(); held != 0 {
		t.Errorf("%d bytes are held afterwards", held)
	}
}
