package artifact

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"os"

	"github.com/outboard-run/outboard"
)

// A Sender reads a file of a store that is sent to a peer. The peer verifies the content as well, but
// only the sender can delete its own corrupt copy, which otherwise would stay until this node reads it.
type Sender struct {
	store  *Store
	digest string
	f      *os.File
	size   int64
	sum    hash.Hash
}

// OpenSender opens a file of the store to send it to a peer.
func OpenSender(s *Store, digest string) (*Sender, error) {
	f, err := OpenFile(s, digest)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &Sender{store: s, digest: digest, f: f, size: info.Size(), sum: sha256.New()}, nil
}

// Size returns the number of bytes of the file.
func (s *Sender) Size() int64 { return s.size }

// Read implements io.Reader. At the end of a corrupt file it deletes the file, and returns an error of
// kind outboard.NotFound in place of io.EOF.
func (s *Sender) Read(p []byte) (int, error) {
	n, err := s.f.Read(p)
	s.sum.Write(p[:n])
	if errors.Is(err, io.EOF) && algorithm+hex.EncodeToString(s.sum.Sum(nil)) != s.digest {
		_ = discard(s.store, s.digest, s.f) // It says that there is none here, which is new to the peer.
		err = outboard.Errorf(outboard.NotFound, "", "the copy of %s was corrupt, and is deleted", s.digest)
	}
	return n, err
}

// Close implements io.Closer.
func (s *Sender) Close() error { return s.f.Close() }
