package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	"github.com/outboard-run/outboard"
)

const algorithm = "sha256:"

// Digest returns the digest of content, "sha256:" and 64 hexadecimal digits.
func Digest(content []byte) string {
	sum := sha256.Sum256(content)
	return algorithm + hex.EncodeToString(sum[:])
}

// CheckDigest returns an error if digest does not have the form of a digest.
func CheckDigest(digest string) error {
	_, err := hexOf(digest)
	return err
}

// hexOf returns a digest's file name in the folder of blobs.
func hexOf(digest string) (string, error) {
	name, ok := strings.CutPrefix(digest, algorithm)
	if raw, err := hex.DecodeString(name); !ok || err != nil || len(raw) != sha256.Size || name != strings.ToLower(name) {
		return "", outboard.Errorf(outboard.Invalid, "", "%q is no digest: want sha256: and 64 digits", digest)
	}
	return name, nil
}

// differs returns the error for content that does not match its digest.
func differs(digest, found string) error {
	return outboard.Errorf(outboard.Invalid, "", "the content has the digest %s, not %s", found, digest)
}
