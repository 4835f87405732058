package ranks

import (
	"context"
	"os"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/ipc"
	"github.com/outboard-run/outboard/internal/train/profile"
)

// ProfileVariable names the environment variable that makes a rank measure a profile, which it sends
// to its node at its end, and MaxProfile bounds a profile in bytes.
const (
	ProfileVariable = "OUTBOARD_PROFILE"
	MaxProfile      = profile.MaxSize
)

// checkpoint stores the file that comes with a request, and answers when it is stored.
func (m *member) checkpoint(msg *ipc.Message, number int) error {
	const op = "save a checkpoint"
	keep := m.server.opts.Checkpoint
	if keep == nil || number < 0 {
		return outboard.Errorf(outboard.Invalid, op, "this program is no rank of a job in the pool: start it with --device")
	}
	return m.keepFile(msg, op, func(ctx context.Context, f *os.File) error { return keep(ctx, f, number) })
}

// profile stores the profile of a rank of this node, and answers when it is stored.
func (m *member) profile(msg *ipc.Message, rank int) error {
	const op = "save a profile"
	o := &m.server.opts
	if o.Profile == nil || rank < o.FirstRank || rank >= o.FirstRank+o.Ranks {
		return outboard.Errorf(outboard.Invalid, op, "no profile of rank %d is wanted here: start its job with --profile", rank)
	}
	return m.keepFile(msg, op, func(ctx context.Context, f *os.File) error {
		if err := profile.CheckFile(f); err != nil {
			return err
		}
		return o.Profile(ctx, f, rank)
	})
}

// keepFile passes the file that comes with a request to keep, and answers when keep returns. Each
// rank may have one such request at a time.
func (m *member) keepFile(msg *ipc.Message, op string, keep func(context.Context, *os.File) error) error {
	f := msg.File()
	if f == nil {
		return outboard.Errorf(outboard.Invalid, op, "no file")
	}
	if !m.saving.CompareAndSwap(false, true) {
		_ = f.Close() // It was only received.
		return outboard.Errorf(outboard.Exhausted, op, "another file of this rank is being saved")
	}
	request := pending(msg)
	m.server.working.Go(func() {
		defer f.Close()
		err := keep(m.server.life, f)
		m.saving.Store(false)
		m.reply(request, err)
	})
	return nil
}
