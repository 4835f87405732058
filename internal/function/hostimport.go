package function

import (
	"context"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// The answers of host functions: a handle or an address that is none, and the numbers
// that calls return.
const (
	done        = 0
	refused     = 1 // the error's text is the result
	txnUnmet    = 1 // the condition's number is the result
	txnFailed   = 2
	noOffset    = 1<<64 - 1 // -1
	noRoom      = 1<<32 - 1
	noRevision  = 1<<64 - 1
	noSuchThing = 0
)

// provideImports adds what functions import resources with.
func provideImports(b wazero.HostModuleBuilder) {
	for _, f := range []struct {
		name   string
		run    func(s *slot, stack []uint64)
		params int
		result []api.ValueType
	}{
		{"request_offset", requestOffset, 0, []api.ValueType{i64}},
		{"response_place", responsePlace, 2, []api.ValueType{i32}},
		{"arena_alloc", arenaAlloc, 1, []api.ValueType{i32}},
		{"import", importResource, 2, []api.ValueType{i32}},
		{"drop", dropResource, 1, nil},
		{"result_size", resultSize, 0, []api.ValueType{i32}},
		{"result_read", resultRead, 3, []api.ValueType{i32}},
		{"call", callFunction, 3, []api.ValueType{i32}},
		{"secret", readSecret, 1, []api.ValueType{i32}},
		{"bucket_get", bucketGet, 3, []api.ValueType{i64}},
		{"bucket_txn", bucketTxn, 3, []api.ValueType{i32}},
		{"arena_map", arenaMap, 1, []api.ValueType{i32}},
		{"device_info", deviceInfo, 1, []api.ValueType{i32}},
		{"device_do", deviceDo, 3, []api.ValueType{i32}},
		{"meta", meta, 2, []api.ValueType{i32}},
	} {
		params := []api.ValueType{i32, i32, i32}[:f.params]
		export(b, f.name, func(ctx context.Context, _ api.Module, stack []uint64) { f.run(slotOf(ctx), stack) }, params, f.result...)
	}
}

func requestOffset(s *slot, stack []uint64) {
	stack[0] = noOffset
	if s.requestAt != nil && s.shows(*s.requestAt) {
		stack[0] = uint64(s.requestAt.Offset)
		s.pointer += int64(s.requestAt.Size)
	}
}

func responsePlace(s *slot, stack []uint64) {
	if s.respondPlace(Place{int(uint32(stack[0])), int(uint32(stack[1]))}) {
		stack[0] = done
	} else {
		stack[0] = refused
	}
}

func arenaAlloc(s *slot, stack []uint64) {
	size := int(uint32(stack[0]))
	stack[0] = noRoom
	if at, ok := s.alloc(size); ok {
		stack[0] = uint64(at)
	}
}

func importResource(s *slot, stack []uint64) {
	number := int32(noSuchThing)
	name, err := s.argument("a name", stack, maxName)
	if err == nil {
		number, err = s.importName(string(name))
	}
	stack[0] = uint64(uint32(number))
	s.failed(err)
}

func dropResource(s *slot, stack []uint64) { s.failed(s.drop(int32(stack[0]))) }

func resultSize(s *slot, stack []uint64) { stack[0] = uint64(len(s.result)) }

func resultRead(s *slot, stack []uint64) { stack[0] = s.give(s.result, stack) }

func callFunction(s *slot, stack []uint64) {
	err := s.call(int32(stack[0]), uint32(stack[1]), uint32(stack[2]))
	stack[0] = done
	if s.failed(err) {
		stack[0] = refused
	}
}

func readSecret(s *slot, stack []uint64) {
	err := s.secret(int32(stack[0]))
	stack[0] = done
	if s.failed(err) {
		stack[0] = refused
	}
}

func bucketGet(s *slot, stack []uint64) {
	var revision uint64
	key, err := s.argument("a key", stack[1:], maxKey)
	if err == nil {
		revision, err = s.get(int32(stack[0]), key)
	}
	stack[0] = revision
	if s.failed(err) {
		stack[0] = noRevision
	}
}

func bucketTxn(s *slot, stack []uint64) {
	unmet := -1
	encoded, err := s.argument("a transaction", stack[1:], maxTxn)
	if err == nil {
		unmet, err = s.transact(int32(stack[0]), encoded)
	}
	switch {
	case s.failed(err):
		stack[0] = txnFailed
	case unmet >= 0:
		s.result = strconv.AppendInt(nil, int64(unmet), 10)
		stack[0] = txnUnmet
	default:
		stack[0] = done
	}
}

func arenaMap(s *slot, stack []uint64) {
	address, err := s.arenaMap(int32(stack[0]))
	stack[0] = uint64(address)
	s.failed(err)
}

func deviceInfo(s *slot, stack []uint64) {
	err := s.deviceInfo(int32(stack[0]))
	stack[0] = done
	if s.failed(err) {
		stack[0] = refused
	}
}

func deviceDo(s *slot, stack []uint64) {
	list, err := s.argument("a list of commands", stack[1:], maxList)
	if err == nil {
		err = s.deviceDo(int32(stack[0]), list)
	}
	stack[0] = done
	if s.failed(err) {
		stack[0] = refused
	}
}

func meta(s *slot, stack []uint64) {
	name, err := s.argument("a name", stack, maxName)
	stack[0] = noSuchThing
	if err == nil && s.meta(string(name)) {
		stack[0] = 1
	}
	s.failed(err)
}

// failed makes an error's text the result. Whatever took long, the call goes on only if
// it may.
func (s *slot) failed(err error) bool {
	if err != nil {
		s.result = []byte(err.Error())
	}
	s.meter.goOn()
	return err != nil
}
