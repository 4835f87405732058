package compute

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Limits of one list of commands.
const (
	// MaxList bounds the length of a list, in bytes. Larger data lies in the program's memory, and
	// the list contains its place.
	MaxList = 16 << 20
	// MaxResult bounds the bytes that a list reads into the result.
	MaxResult = 16 << 20

	maxCommands = 1 << 16
	maxArgs     = 128
	maxDims     = 3
	maxScalar   = 4 << 10
	maxName     = 1 << 10
	maxOptions  = 64 << 10
)

// op is the operation of a command.
type op uint8

const (
	opBuffer op = iota + 1
	opWrite
	opProgram
	opLaunch
	opRead
	opFree
	opWriteFrom
	opReadTo
)

var opNames = [...]string{"none", "buffer", "write", "program", "launch", "read", "free", "write", "read"}

func (o op) String() string { return opNames[o] }

// The kinds of a launch's arguments.
const (
	argScalar = iota + 1
	argBuffer
	argLocal
)

// Command is a command of a list. Its bytes are part of the list.
type Command struct {
	op     op
	number uint32 // of a buffer or a program
	size   uint64 // of a new buffer, or of the data
	offset uint64
	bytes  []byte // to be written
	at     uint32 // address in the program's memory

	source, options, kernel string
	global, local           []uint64
	args                    []arg
}

type arg struct {
	kind   uint8
	bytes  []byte
	number uint32
	size   uint64
}

var errTruncated = errors.New("it is cut short")

// Decode decodes a list of commands. The list's memory may change meanwhile: each number is read
// once.
func Decode(list []byte) ([]Command, error) {
	if len(list) > MaxList {
		return nil, fmt.Errorf("list of commands: %d bytes, at most %d are allowed", len(list), MaxList)
	}
	d := decoder{rest: list}
	var commands []Command
	for len(d.rest) > 0 {
		if len(commands) == maxCommands {
			return nil, fmt.Errorf("list of commands: more than %d", maxCommands)
		}
		c := d.command()
		if d.err != nil {
			return nil, fmt.Errorf("list of commands: number %d: %w", len(commands), d.err)
		}
		commands = append(commands, c)
	}
	return commands, nil
}

// decoder reads numbers. The first error is kept.
type decoder struct {
	rest []byte
	err  error
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
	d.rest = nil
}

func (d *decoder) next(n int) []byte {
	if n > len(d.rest) {
		if d.err == nil {
			d.err = errTruncated
		}
		d.rest = nil
		return make([]byte, min(n, 8))
	}
	b := d.rest[:n:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) u8() uint8   { return d.next(1)[0] }
func (d *decoder) u32() uint32 { return binary.LittleEndian.Uint32(d.next(4)) }
func (d *decoder) u64() uint64 { return binary.LittleEndian.Uint64(d.next(8)) }

// bytes reads a count and as many bytes.
func (d *decoder) bytes(subject string, most int) []byte {
	n := d.u32()
	if int64(n) > int64(most) {
		d.fail("%s of %d bytes: at most %d are allowed", subject, n, most)
		return nil
	}
	b := d.next(int(n))
	if d.err != nil {
		return nil
	}
	return b
}

func (d *decoder) words(n int) []uint64 {
	words := make([]uint64, n)
	for i := range words {
		words[i] = d.u64()
	}
	return words
}

func (d *decoder) command() Command {
	c := Command{op: op(d.u8())}
	if c.op < opBuffer || c.op > opReadTo {
		d.fail("there is no command %d", c.op)
		return c
	}
	c.number = d.u32()
	switch c.op {
	case opBuffer:
		c.size = d.u64()
	case opWrite:
		c.offset = d.u64()
		c.bytes = d.bytes("data", MaxList)
		c.size = uint64(len(c.bytes))
	case opProgram:
		c.source, c.options = string(d.bytes("a program", MaxList)), string(d.bytes("options", maxOptions))
	case opLaunch:
		d.launch(&c)
	case opRead:
		c.offset, c.size = d.u64(), uint64(d.u32())
	case opFree:
	case opWriteFrom, opReadTo:
		c.offset, c.at, c.size = d.u64(), d.u32(), uint64(d.u32())
	}
	return c
}

func (d *decoder) launch(c *Command) {
	c.kernel = string(d.bytes("a kernel's name", maxName))
	dims := int(d.u8())
	if d.err == nil && (dims < 1 || dims > maxDims) {
		d.fail("launch of %s: %d dimensions: want 1 to %d", c.kernel, dims, maxDims)
	}
	if d.err != nil {
		return
	}
	c.global, c.local = d.words(dims), d.words(dims)
	n := int(d.u8())
	if n > maxArgs {
		d.fail("launch of %s: %d arguments: at most %d are allowed", c.kernel, n, maxArgs)
	}
	for range n {
		if d.err != nil {
			return
		}
		c.args = append(c.args, d.arg(c))
	}
}

func (d *decoder) arg(c *Command) arg {
	a := arg{kind: d.u8()}
	switch {
	case d.err != nil:
	case a.kind == argScalar:
		a.bytes = d.bytes("an argument", maxScalar)
	case a.kind == argBuffer:
		a.number = d.u32()
	case a.kind == argLocal:
		a.size = d.u64()
	default:
		d.fail("launch of %s: there is no kind %d of arguments", c.kernel, a.kind)
	}
	return a
}
