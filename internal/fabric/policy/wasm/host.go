package wasm

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"google.golang.org/grpc/codes"
)

// A visit is a module's run on one call.
type visit struct {
	call      Call
	verdict   Verdict
	ended     bool // the call is over: it can't be changed
	hostCalls int
}

type visitKey struct{}

// Limits of a visit: calls of host functions, and bytes of a key, of a value and of a message.
const (
	maxHostCalls = 10_000
	maxKey       = 1 << 10
	maxValue     = 16 << 10
	maxMessage   = 4 << 10
)

// none is the result of a host function that has no answer.
const none = -1

var (
	errOutside          = errors.New("an address outside of memory")
	errTooManyHostCalls = fmt.Errorf("more than %d calls of the host's functions", maxHostCalls)
	errNoCall           = errors.New("no call is at hand")
)

// host instantiates the host module "outboard", whose functions modules import.
func host(ctx context.Context, r wazero.Runtime) error {
	i32, i32s := api.ValueTypeI32, func(n int) []api.ValueType {
		list := make([]api.ValueType, n)
		for i := range list {
			list[i] = api.ValueTypeI32
		}
		return list
	}
	b := r.NewHostModuleBuilder("outboard")
	oneInt32 := []api.ValueType{i32}
	b.NewFunctionBuilder().WithGoModuleFunction(function(getHead), i32s(4), oneInt32).Export("get_head")
	b.NewFunctionBuilder().WithGoModuleFunction(function(getMetadata), i32s(4), oneInt32).Export("get_metadata")
	b.NewFunctionBuilder().WithGoModuleFunction(function(setMetadata), i32s(4), oneInt32).Export("set_metadata")
	b.NewFunctionBuilder().WithGoModuleFunction(function(getPayload), i32s(3), oneInt32).Export("get_payload")
	b.NewFunctionBuilder().WithGoModuleFunction(function(deny), i32s(3), nil).Export("deny")
	if _, err := b.Instantiate(ctx); err != nil {
		return fmt.Errorf("functions for modules: %w", err)
	}
	return nil
}

// A hostCall is a module's call of a host function.
type hostCall struct {
	*visit
	memory api.Memory
	stack  []uint64
}

// function returns the host function that calls f for the visit of its context. A panic of f traps
// the module.
func function(f func(hostCall)) api.GoModuleFunc {
	return func(ctx context.Context, m api.Module, stack []uint64) {
		v, ok := ctx.Value(visitKey{}).(*visit)
		if !ok {
			panic(errNoCall) //nolint:forbidigo // wazero's way to trap
		}
		if v.hostCalls++; v.hostCalls > maxHostCalls {
			panic(errTooManyHostCalls) //nolint:forbidigo // wazero's way to trap
		}
		f(hostCall{v, m.Memory(), stack})
	}
}

func (a hostCall) number(i int) uint32 { return api.DecodeU32(a.stack[i]) }

// text returns a copy of the bytes whose address and length are arguments i and i+1. A length above
// most traps.
func (a hostCall) text(i, most int) string {
	length := a.number(i + 1)
	if length > uint32(most) {
		panic(fmt.Errorf("%d bytes, and %d is the most", length, most)) //nolint:forbidigo // wazero's way to trap
	}
	bytes, ok := a.memory.Read(a.number(i), length)
	if !ok {
		panic(errOutside) //nolint:forbidigo // wazero's way to trap
	}
	return string(bytes)
}

// answer writes s to the buffer whose address and size are arguments i and i+1, if s fits, and sets
// the function's result to its length. Without an answer (there is false) the result is none.
func (a hostCall) answer(i int, s string, there bool) {
	if !there {
		a.result(none)
		return
	}
	if len(s) <= int(a.number(i+1)) && !a.memory.WriteString(a.number(i), s) {
		panic(errOutside) //nolint:forbidigo // wazero's way to trap
	}
	a.result(int32(len(s)))
}

func (a hostCall) result(v int32) { a.stack[0] = api.EncodeI32(v) }

func getHead(a hostCall) {
	s, ok := a.call.Head(a.text(0, maxKey))
	a.answer(2, s, ok)
}

func getMetadata(a hostCall) {
	s, ok := a.call.Metadata(a.text(0, maxKey))
	a.answer(2, s, ok)
}

func setMetadata(a hostCall) {
	key, value := a.text(0, maxKey), a.text(2, maxValue)
	if a.ended || !a.call.SetMetadata(key, value) {
		a.result(none)
		return
	}
	a.result(0)
}

// getPayload writes as much of the request, from an offset, as fits the module's buffer. Its result
// is the length of the request.
func getPayload(a hostCall) {
	payload, err := a.payload()
	if err != nil {
		a.result(none)
		return
	}
	rest := payload[min(int(a.number(2)), len(payload)):]
	if !a.memory.Write(a.number(0), rest[:min(len(rest), int(a.number(1)))]) {
		panic(errOutside) //nolint:forbidigo // wazero's way to trap
	}
	a.result(int32(len(payload)))
}

func (a hostCall) payload() ([]byte, error) {
	if a.ended {
		return nil, errors.New("the request is gone")
	}
	return a.call.Payload()
}

func deny(a hostCall) {
	code := codes.Code(a.number(0))
	if code == codes.OK || code > codes.Unauthenticated {
		code = codes.PermissionDenied
	}
	a.verdict = Verdict{true, code, strings.ToValidUTF8(a.text(1, maxMessage), "?")}
}

// firstLine returns an error without the stack trace that wazero adds.
func firstLine(err error) error {
	line, _, cut := strings.Cut(err.Error(), "\n")
	if !cut {
		return err
	}
	return errors.New(line)
}
