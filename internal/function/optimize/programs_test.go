package optimize

import (
	"bytes"

	. "github.com/outboard-run/outboard/internal/function/assemble"
)

// programs are small modules that use what a rewriter could break. Each exports what
// can be called with numbers.
func programs() map[string][]byte {
	i32, none := []byte{I32}, []byte(nil)
	return map[string][]byte{
		"factorial": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(Body(0x20, 0, 0x45, 0x04, I32, 0x41, 1, 0x05, 0x20, 0, 0x20, 0, 0x41, 1, 0x6b, 0x10, 0, 0x6c, 0x0b)),
		),
		"mutual recursion": File(
			Types(Type(i32, i32)), Functions(0, 0), Exports(Export("f", 0, 0)),
			Code(
				Body(0x20, 0, 0x45, 0x04, I32, 0x41, 1, 0x05, 0x20, 0, 0x41, 1, 0x6b, 0x10, 1, 0x0b),
				Body(0x20, 0, 0x45, 0x04, I32, 0x41, 2, 0x05, 0x20, 0, 0x41, 1, 0x6b, 0x10, 0, 0x0b),
			),
		),
		"recursion by way of a table": File(
			Types(Type(i32, i32)), Functions(0), Table(1), Exports(Export("f", 0, 0)), Elements(0, 0),
			Code(Body(0x20, 0, 0x45, 0x04, I32, 0x41, 1, 0x05, 0x20, 0, 0x41, 1, 0x6b, 0x41, 0, 0x11, 0, 0, 0x0b)),
		),
		"sum in a loop": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(BodyWith(i32, 0x03, 0x40, 0x20, 1, 0x20, 0, 0x6a, 0x21, 1, 0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x41, 0, 0x4a, 0x0d, 0, 0x0b, 0x20, 1)),
		),
		"nested loops": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(BodyWith([]byte{I32, I32},
				0x20, 0, 0x41, 15, 0x71, 0x21, 0, // x &= 15
				0x03, 0x40, 0x20, 0, 0x21, 1,
				0x03, 0x40, 0x20, 2, 0x41, 3, 0x6a, 0x21, 2, 0x20, 1, 0x41, 1, 0x6b, 0x22, 1, 0x41, 0, 0x4a, 0x0d, 0, 0x0b,
				0x20, 0, 0x41, 1, 0x6b, 0x22, 0, 0x41, 0, 0x4a, 0x0d, 0, 0x0b, 0x20, 2)),
		),
		"loop with a parameter": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(Body(0x20, 0, 0x41, 31, 0x71, 0x03, 0, 0x41, 1, 0x6b, 0x22, 0, 0x20, 0, 0x41, 0, 0x4a, 0x0d, 0, 0x0b)),
		),
		"loop without a branch back": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(Body(0x03, I32, 0x20, 0, 0x41, 2, 0x6c, 0x0b)),
		),
		"branch table": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(Body(0x02, 0x40, 0x02, 0x40, 0x02, 0x40, 0x20, 0, 0x0e, 2, 0, 1, 2, 0x0b, 0x41, 10, 0x0f, 0x0b, 0x41, 20, 0x0f, 0x0b, 0x41, 30)),
		),
		"start, data and globals": File(
			Types(Type(none, none), Type(i32, i32)), Functions(0, 1, 1), Memory(1, 3),
			Globals(Variable(I32, true, 0x41, 5), Variable(I64, false, 0x42, 6), Variable(F64, true, 0x44, 0, 0, 0, 0, 0, 0, 0xf0, 0x3f)),
			Exports(Export("f", 0, 1), Export("grow", 0, 2), Export("memory", 2, 0), Export("g", 3, 0)),
			Start(0),
			Code(
				Body(bytes.Join([][]byte{I32Const(100), I32Const(99), {0x36, 2, 0}, {0x41, 9, 0x24, 0}}, nil)...),
				Body(0x23, 0, 0x20, 0, 0x6a, 0x24, 0, 0x20, 0, 0x41, 0xff, 0, 0x71, 0x28, 2, 0, 0x23, 0, 0x6a),
				Body(0x20, 0, 0x40, 0, 0x3f, 0, 0x6a),
			),
			Data(Active(0, 1, 2, 3, 4), Active(10, 5), Active(2, 9)),
		),
		"passive data": File(
			Types(Type(i32, i32)), Functions(0), Memory(1, 1), Exports(Export("f", 0, 0), Export("memory", 2, 0)), DataCount(3),
			Code(Body(0x20, 0, 0x41, 0, 0x41, 3, 0xfc, 8, 1, 0, 0x41, 0, 0x41, 0, 0x41, 0, 0xfc, 8, 0, 0, 0x41, 0, 0x28, 2, 0)),
			Data(Active(50, 1, 2), Passive(7, 8, 9), Active(60, 3)),
		),
		"dropped data": File(
			Types(Type(i32, i32)), Functions(0), Memory(1, 1), Exports(Export("f", 0, 0), Export("memory", 2, 0)), DataCount(1),
			Code(Body(0x41, 0, 0x41, 0, 0x20, 0, 0xfc, 8, 0, 0, 0x41, 0)), Data(Active(50, 1, 2)),
		),
		"table": File(
			Types(Type(i32, i32)), Functions(0, 0, 0), Table(4), Exports(Export("f", 0, 2)), Elements(1, 0, 1),
			Code(Body(0x20, 0, 0x41, 1, 0x6a), Body(0x20, 0, 0x41, 2, 0x6c), Body(0x20, 0, 0x20, 0, 0x11, 0, 0)),
		),
		"vectors": File(
			Types(Type(i32, i32)), Functions(0), Memory(1, 1), Exports(Export("f", 0, 0)),
			Code(Body(0x20, 0, 0xfd, 0x11, 0xfd, 0x0c, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0xfd, 0xae, 1, 0xfd, 0x1b, 3)),
		),
		"large moves": File(
			Types(Type(i32, i32)), Functions(0), Memory(2, 2), Exports(Export("f", 0, 0), Export("memory", 2, 0)),
			Code(Body(
				0x41, 5, 0x20, 0, 0x20, 0, 0xfc, 11, 0, // fill
				0x41, 100, 0x41, 0, 0x20, 0, 0x41, 2, 0x6c, 0xfc, 10, 0, 0, // copy
				0x41, 100, 0x28, 2, 0,
			)),
		),
		"tail calls": File(
			Types(Type(i32, i32)), Functions(0), Exports(Export("f", 0, 0)),
			Code(Body(0x20, 0, 0x41, 1, 0x48, 0x04, I32, 0x41, 7, 0x05, 0x20, 0, 0x41, 1, 0x6b, 0x12, 0, 0x0b)),
		),
		"small helpers": File(
			Types(Type(i32, i32)), Functions(0, 0, 0), Exports(Export("f", 0, 2)),
			Code(Body(0x20, 0, 0x41, 1, 0x6a), Body(0x20, 0, 0x10, 0, 0x10, 0), Body(0x20, 0, 0x10, 1, 0x10, 1, 0x10, 0)),
		),
		"traps": File(
			Types(Type(i32, i32)), Functions(0), Memory(1, 1), Exports(Export("f", 0, 0)),
			Code(Body(0x41, 100, 0x20, 0, 0x6e, 0x20, 0, 0x28, 2, 0, 0x6a)),
		),
	}
}
