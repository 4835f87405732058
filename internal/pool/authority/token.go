package authority

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"strings"

	"github.com/outboard-run/outboard"
)

const (
	tokenPrefix = "obt1-"
	secretLen   = 16
)

var tokenText = base32.StdEncoding.WithPadding(base32.NoPadding)

// A Token admits one node. It contains the fingerprint of the pool's authority, by which the
// joining node authenticates the pool, and a secret.
type Token struct {
	root   [sha256.Size]byte
	secret [secretLen]byte
}

// NewToken creates a token for the authority's pool.
func (a *Authority) NewToken() Token {
	t := Token{root: sha256.Sum256(a.Cert.RawSubjectPublicKeyInfo)}
	rand.Read(t.secret[:]) // It never fails.
	return t
}

// String returns the token's text, which is all that a joining node needs.
func (t Token) String() string {
	raw := append(t.root[:], t.secret[:]...)
	return tokenPrefix + strings.ToLower(tokenText.EncodeToString(raw))
}

// Hash returns the form in which the pool stores a token.
func (t Token) Hash() string { return hashSecret(t.secret[:]) }

func hashSecret(secret []byte) string {
	sum := sha256.Sum256(secret)
	return hex.EncodeToString(sum[:])
}

// ParseToken reads a token's text.
func ParseToken(text string) (Token, error) {
	var t Token
	body, ok := strings.CutPrefix(strings.TrimSpace(text), tokenPrefix)
	raw, err := tokenText.DecodeString(strings.ToUpper(body))
	if !ok || err != nil || len(raw) != len(t.root)+len(t.secret) {
		return t, outboard.Errorf(outboard.Invalid, "token",
			"it is not one: want the whole text that `outboard token` printed, %q and what follows", tokenPrefix)
	}
	copy(t.root[:], raw)
	copy(t.secret[:], raw[len(t.root):])
	return t, nil
}

// isRoot reports whether a public key's fingerprint is that of the token's authority.
func (t Token) isRoot(publicKey []byte) bool {
	sum := sha256.Sum256(publicKey)
	return subtle.ConstantTimeCompare(sum[:], t.root[:]) == 1
}
