package opencl

import (
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
)

// A codec is the fields of a message.
type codec interface {
	encoder
	decode(body []byte) error
}

// TestCodecs: every message is decoded to the fields that it was encoded from, and is refused if
// any part of it is missing, or follows it.
func TestCodecs(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, newCodec := range codecs {
		for range 20 {
			sent, received := newCodec(), newCodec()
			fill(random, reflect.ValueOf(sent).Elem())
			body := sent.encode(nil)
			if err := received.decode(body); err != nil || !reflect.DeepEqual(sent, received) {
				t.Errorf("%T: %+v was decoded to %+v (%v)", sent, sent, received, err)
			}
			if newCodec().decode(append(slices.Clip(body), make([]byte, 8)...)) == nil {
				t.Errorf("%T: a body with a word more was decoded", sent)
			}
			for size := range len(body) {
				if newCodec().decode(body[:size]) == nil {
					t.Errorf("%T: %d of %d bytes were decoded", sent, size, len(body))
				}
			}
		}
	}
}

// fill sets the fields of a struct to random values; arrays and texts may be absent.
func fill(random *rand.Rand, v reflect.Value) {
	for _, field := range v.Fields() {
		switch value := field.Addr().Interface().(type) {
		case *text:
			if *value = (text{}); random.IntN(3) > 0 {
				*value = text{"text"[:random.IntN(5)], true}
			}
		case *[]byte:
			*value = randomSlice(random, func() byte { return byte(random.Uint32()) })
		case *[]uint32:
			*value = randomSlice(random, random.Uint32)
		case *[]uint64:
			*value = randomSlice(random, random.Uint64)
		default:
			if field.CanInt() {
				field.SetInt(int64(random.Uint64()) >> (64 - field.Type().Bits()))
			} else {
				field.SetUint(random.Uint64() >> (64 - field.Type().Bits()))
			}
		}
	}
}

// randomSlice returns up to eight random elements, or nil for an absent array.
func randomSlice[T any](random *rand.Rand, element func() T) []T {
	if random.IntN(3) == 0 {
		return nil
	}
	s := make([]T, random.IntN(9))
	for i := range s {
		s[i] = element()
	}
	return s
}
