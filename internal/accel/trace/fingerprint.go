package trace

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"io"
	"os"
)

// Fingerprint identifies a program's run: the SHA-256 of the contents of the program's file and
// of its arguments, without args[0].
func Fingerprint(path string, args []string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	sum := sha256.New()
	size, err := io.Copy(sum, f)
	if err != nil {
		return "", err
	}
	_ = binary.Write(sum, binary.LittleEndian, size)
	for _, arg := range args[min(1, len(args)):] {
		_ = binary.Write(sum, binary.LittleEndian, uint64(len(arg)))
		_, _ = io.WriteString(sum, arg)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
