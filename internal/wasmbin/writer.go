package wasmbin

// AppendU32 appends an unsigned LEB128 number.
func AppendU32(b []byte, v uint32) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}

// AppendSigned appends a signed LEB128 number.
func AppendSigned(b []byte, v int64) []byte {
	for v < -64 || v > 63 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v)&0x7f)
}

// AppendName appends a name with its length.
func AppendName(b []byte, name string) []byte {
	return append(AppendU32(b, uint32(len(name))), name...)
}

// AppendSection appends a section with its identifier and length.
func AppendSection(b []byte, id byte, body []byte) []byte {
	b = append(b, id)
	b = AppendU32(b, uint32(len(body)))
	return append(b, body...)
}

// PaddedSize is the size of the number that PutPaddedU32 writes.
const PaddedSize = 5

// PutPaddedU32 writes a number as LEB128 of PaddedSize bytes to the beginning of b: for a length
// that is known only after its contents are written.
func PutPaddedU32(b []byte, v uint32) {
	_ = b[PaddedSize-1]
	for i := range PaddedSize - 1 {
		b[i] = byte(v)&0x7f | 0x80
		v >>= 7
	}
	b[PaddedSize-1] = byte(v)
}
