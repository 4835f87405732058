package opencl

import "encoding/binary"

// imageDesc is cl_image_desc, 72 bytes on 64-bit machines.
type imageDesc struct {
	kind                                uint32
	width, height, depth, array         uint64
	rowPitch, slicePitch                uint64
	levels, samples                     uint32
	memAt, rowPitchAt, slicePitchOffset int
}

const clInvalidImageDescriptor int32 = -65

const imageDescSize, imageFormatSize = 72, 8

func readImageDesc(b []byte) imageDesc {
	return imageDesc{
		kind: binary.LittleEndian.Uint32(b), width: firstWord(b[8:]), height: firstWord(b[16:]), depth: firstWord(b[24:]), array: firstWord(b[32:]),
		rowPitch: firstWord(b[40:]), slicePitch: firstWord(b[48:]), levels: binary.LittleEndian.Uint32(b[56:]), samples: binary.LittleEndian.Uint32(b[60:]),
		memAt: 64, rowPitchAt: 40, slicePitchOffset: 48,
	}
}

// pixels returns the number of pixels; dimensions that an image type does not use may have any
// value.
func (d imageDesc) pixels() uint64 {
	switch d.kind {
	case 0x10F1: // 2D
		return product(d.width, max(d.height, 1))
	case 0x10F2: // 3D
		return product(d.width, max(d.height, 1), max(d.depth, 1))
	case 0x10F3: // 2D array
		return product(d.width, max(d.height, 1), max(d.array, 1))
	case 0x10F5: // 1D array
		return product(d.width, max(d.array, 1))
	}
	return d.width
}

// The channels and channel widths of cl_image_format by channel order (CL_R, ...) and channel type
// (CL_SNORM_INT8, ...).
var (
	channelCounts = map[uint32]uint64{
		0x10B0: 1, 0x10B1: 1, 0x10B2: 2, 0x10B3: 2, 0x10B4: 3, 0x10B5: 4, 0x10B6: 4, 0x10B7: 4, 0x10B8: 1, 0x10B9: 1,
		0x10BA: 2, 0x10BB: 3, 0x10BC: 4, 0x10BD: 1, 0x10BE: 1, 0x10BF: 3, 0x10C0: 4, 0x10C1: 4, 0x10C2: 4, 0x10C3: 4,
	}
	channelWidths = map[uint32]uint64{
		0x10D0: 1, 0x10D1: 2, 0x10D2: 1, 0x10D3: 2, 0x10D7: 1, 0x10D8: 2, 0x10D9: 4, 0x10DA: 1, 0x10DB: 2, 0x10DC: 4,
		0x10DD: 2, 0x10DE: 4, 0x10DF: 4,
	}
	packedWidths = map[uint32]uint64{0x10D4: 2, 0x10D5: 2, 0x10D6: 4, 0x10E0: 4} // whole pixels
)

// elementSize returns a pixel's size in bytes; 0 for an unknown format.
func elementSize(format []byte) uint64 {
	order, kind := binary.LittleEndian.Uint32(format), binary.LittleEndian.Uint32(format[4:])
	if n := packedWidths[kind]; n > 0 {
		return n
	}
	return channelCounts[order] * channelWidths[kind]
}
