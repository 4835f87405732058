package function

import (
	"context"
	"strconv"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
)

// The results of host functions: the values for no handle, address or offset, and status codes.
const (
	done       = 0
	refused    = 1 // the error's text is the result
	txnUnmet   = 1 // the condition's number is the result
	txnFailed  = 2
	noOffset   = 1<<64 - 1 // -1
	noRoom     = 1<<32 - 1
	noRevision = 1<<64 - 1
	noHandle   = 0
)

// provideImports adds the host functions for resources.
func provideImports(b wazero.HostModuleBuilder) {
	for _, f := range []struct {
		name   string
		run    func(c *invocation, stack []uint64)
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
		export(b, f.name, func(ctx context.Context, _ api.Module, stack []uint64) { f.run(invocationOf(ctx), stack) }, params, f.result...)
	}
}

func requestOffset(c *invocation, stack []uint64) {
	stack[0] = noOffset
	if c.requestAt != nil && c.sees(*c.requestAt) {
		stack[0] = uint64(c.requestAt.Offset)
		c.pointer += int64(c.requestAt.Size)
	}
}

func responsePlace(c *invocation, stack []uint64) {
	if c.setResponsePlace(Extent{int(uint32(stack[0])), int(uint32(stack[1]))}) {
		stack[0] = done
	} else {
		stack[0] = refused
	}
}

func arenaAlloc(c *invocation, stack []uint64) {
	size := int(uint32(stack[0]))
	stack[0] = noRoom
	if at, ok := c.allocateInArena(size); ok {
		stack[0] = uint64(at)
	}
}

func importResource(c *invocation, stack []uint64) {
	number := int32(noHandle)
	name, err := c.readArgument("a name", stack, maxName)
	if err == nil {
		number, err = c.importName(string(name))
	}
	stack[0] = uint64(uint32(number))
	c.reportError(err)
}

func dropResource(c *invocation, stack []uint64) { c.reportError(c.dropHandle(int32(stack[0]))) }

func resultSize(c *invocation, stack []uint64) { stack[0] = uint64(len(c.result)) }

func resultRead(c *invocation, stack []uint64) { stack[0] = c.copyOut(c.result, stack) }

func callFunction(c *invocation, stack []uint64) {
	err := c.callResource(int32(stack[0]), uint32(stack[1]), uint32(stack[2]))
	stack[0] = done
	if c.reportError(err) {
		stack[0] = refused
	}
}

func readSecret(c *invocation, stack []uint64) {
	err := c.loadSecret(int32(stack[0]))
	stack[0] = done
	if c.reportError(err) {
		stack[0] = refused
	}
}

func bucketGet(c *invocation, stack []uint64) {
	var revision uint64
	key, err := c.readArgument("a key", stack[1:], maxKey)
	if err == nil {
		revision, err = c.bucketGet(int32(stack[0]), key)
	}
	stack[0] = revision
	if c.reportError(err) {
		stack[0] = noRevision
	}
}

func bucketTxn(c *invocation, stack []uint64) {
	unmet := -1
	encoded, err := c.readArgument("a transaction", stack[1:], maxTxn)
	if err == nil {
		unmet, err = c.bucketTransact(int32(stack[0]), encoded)
	}
	switch {
	case c.reportError(err):
		stack[0] = txnFailed
	case unmet >= 0:
		c.result = strconv.AppendInt(nil, int64(unmet), 10)
		stack[0] = txnUnmet
	default:
		stack[0] = done
	}
}

func arenaMap(c *invocation, stack []uint64) {
	address, err := c.arenaMap(int32(stack[0]))
	stack[0] = uint64(address)
	c.reportError(err)
}

func deviceInfo(c *invocation, stack []uint64) {
	err := c.deviceInfo(int32(stack[0]))
	stack[0] = done
	if c.reportError(err) {
		stack[0] = refused
	}
}

func deviceDo(c *invocation, stack []uint64) {
	list, err := c.readArgument("a list of commands", stack[1:], maxList)
	if err == nil {
		err = c.deviceDo(int32(stack[0]), list)
	}
	stack[0] = done
	if c.reportError(err) {
		stack[0] = refused
	}
}

func meta(c *invocation, stack []uint64) {
	name, err := c.readArgument("a name", stack, maxName)
	stack[0] = noHandle
	if err == nil && c.loadMeta(string(name)) {
		stack[0] = 1
	}
	c.reportError(err)
}

// reportError makes an error's text the result and reports whether there is one. The host function
// may have taken long, so the deadline is checked, too.
func (c *invocation) reportError(err error) bool {
	if err != nil {
		c.result = []byte(err.Error())
	}
	c.slot.meter.mayContinue()
	return err != nil
}
