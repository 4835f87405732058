package engine

import (
	"encoding/base64"
	"encoding/binary"
)

// PrefixBlock is the number of tokens that each further hash of a prefix covers.
const PrefixBlock = 32

// Prefixes identify beginnings of prompts whose attention state a model holds: one hash for each
// whole block of tokens together with all blocks before it. In JSON they are base64 of
// little-endian numbers.
type Prefixes []uint32

// PrefixHashes returns the hashes of the beginnings of tokens in a CacheScope, of one block, two
// blocks, and so on; at most limit.
func PrefixHashes(scope string, tokens []int32, limit int) Prefixes {
	const offset, prime = 14695981039346656037, 1099511628211 // FNV-1a with 64 bits
	n := min(len(tokens)/PrefixBlock, limit)
	hashes := make(Prefixes, 0, n)
	hash := uint64(offset)
	for i := range len(scope) {
		hash = (hash ^ uint64(scope[i])) * prime
	}
	for i, token := range tokens[:n*PrefixBlock] {
		for shift := 0; shift < 32; shift += 8 {
			hash = (hash ^ uint64(byte(token>>shift))) * prime
		}
		if (i+1)%PrefixBlock == 0 {
			hashes = append(hashes, uint32(hash>>32)^uint32(hash))
		}
	}
	return hashes
}

// MarshalText implements encoding.TextMarshaler.
func (p Prefixes) MarshalText() ([]byte, error) {
	raw := make([]byte, 0, 4*len(p))
	for _, h := range p {
		raw = binary.LittleEndian.AppendUint32(raw, h)
	}
	return base64.StdEncoding.AppendEncode(nil, raw), nil
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (p *Prefixes) UnmarshalText(text []byte) error {
	raw, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	*p = make(Prefixes, 0, len(raw)/4)
	for ; len(raw) >= 4; raw = raw[4:] {
		*p = append(*p, binary.LittleEndian.Uint32(raw))
	}
	return nil
}
