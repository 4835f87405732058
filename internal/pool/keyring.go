package pool

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboard-run/outboard/internal/pool/authority"
	"github.com/outboard-run/outboard/internal/pool/state"
)

func openKeyring(ctx context.Context, s *state.State) (*state.Log, error) {
	log, err := s.OpenLog(ctx, state.AuthorityLog, state.LogOptions{})
	if err != nil {
		return nil, fmt.Errorf("the pool's authority: %w", err)
	}
	return log, nil
}

// createAuthority stores the authority of a new pool. It returns state.ErrConflict where the
// pool has one.
func createAuthority(ctx context.Context, s *state.State, text []byte) error {
	log, err := openKeyring(ctx, s)
	if err != nil {
		return err
	}
	_, err = log.Append(ctx, state.AuthorityKey, 0, text)
	return err
}

// readAuthority returns the authority in force, or state.ErrNotFound for a pool without one.
func readAuthority(ctx context.Context, s *state.State) (*authority.Authority, error) {
	ca, _, err := readKeyring(ctx, s)
	return ca, err
}

// readKeyring returns the authority in force and the sequence of its record.
func readKeyring(ctx context.Context, s *state.State) (*authority.Authority, uint64, error) {
	log, err := openKeyring(ctx, s)
	if err != nil {
		return nil, 0, err
	}
	records, err := log.Read(ctx, state.AuthorityKey)
	if err != nil {
		return nil, 0, err
	}
	if len(records) == 0 {
		return nil, 0, errors.Join(errors.New("the pool has no authority"), state.ErrNotFound)
	}
	last := records[len(records)-1]
	ca, err := authority.ParseAuthority(last.Data)
	return ca, last.Seq, err
}
