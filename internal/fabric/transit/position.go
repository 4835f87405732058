package transit

import (
	"crypto/rand"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/outboard-run/outboard/fabric/call"
)

// The metadata keys of a move. Programs can't set them: package fabric removes them from the
// metadata that it is given.
const (
	// StreamKey has, in a head, the stream's name and the leg's position.
	StreamKey = "outboard-stream"
	// MoveKey means in a head that the leg continues a stream, in a header that the callee has
	// accepted the leg, and in a trailer that the stream continues on another leg.
	MoveKey = "outboard-move"
)

// The values of MoveKey.
const (
	moved          = "on"   // in a head, and in a trailer
	accepted       = "yes"  // in a header: the handler's header was sent on an earlier leg
	acceptedInBand = "late" // in a header: the handler's header is the first message, if there is any
)

// IsMove reports whether a head continues a stream.
func IsMove(h *call.Head) bool { return len(h.Metadata[MoveKey]) > 0 }

// MovedOn reports whether a call that ended with this trailer continues on another leg.
func MovedOn(trailer metadata.MD) bool { return slices.Contains(trailer[MoveKey], moved) }

// HeaderInBand reports whether the header of a leg announces the handler's header as the first
// message.
func HeaderInBand(header metadata.MD) bool { return slices.Contains(header[MoveKey], acceptedInBand) }

// Name returns the stream's name, or "" for a call that can't move.
func Name(h *call.Head) string { return parsePosition(h.Metadata).name }

// Began returns when the stream of that name began, according to its caller.
func Began(name string) (time.Time, bool) {
	_, text, _ := strings.Cut(name, "-")
	ns, err := strconv.ParseInt(text, 16, 64)
	return time.Unix(0, ns), err == nil
}

// Strip returns the metadata without the keys of a move. It does not change md.
func Strip(md metadata.MD) metadata.MD {
	if md[StreamKey] == nil && md[MoveKey] == nil {
		return md
	}
	md = md.Copy()
	delete(md, StreamKey)
	delete(md, MoveKey)
	return md
}

// A position orders the legs of one stream: each element of path counts the moves of one Caller.
type position struct {
	name string
	path []uint32
}

// The limits of a position in a head.
const (
	maxName = 64
	maxPath = 8
)

func newName(now time.Time) string {
	random := make([]byte, 16)
	_, _ = rand.Read(random) // it never fails
	return hex.EncodeToString(random) + "-" + strconv.FormatInt(now.UnixNano(), 16)
}

// parsePosition reads a position. It returns the zero value for a malformed position.
func parsePosition(md metadata.MD) position {
	values := md[StreamKey]
	if len(values) != 1 {
		return position{}
	}
	name, path, ok := strings.Cut(values[0], " ")
	if !ok || name == "" || len(name) > maxName {
		return position{}
	}
	p := position{name: strings.Clone(name)}
	for _, text := range strings.SplitN(path, ".", maxPath+1) {
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil || len(p.path) == maxPath {
			return position{}
		}
		p.path = append(p.path, uint32(n))
	}
	return p
}

func (p position) String() string {
	b := append([]byte(p.name), ' ')
	for i, n := range p.path {
		if i > 0 {
			b = append(b, '.')
		}
		b = strconv.AppendUint(b, uint64(n), 10)
	}
	return string(b)
}

// after reports whether a leg at p comes after a leg at q.
func (p position) after(q position) bool { return slices.Compare(p.path, q.path) > 0 }

// below returns the position below p of a proxy that has moved the stream n times.
func (p position) below(n uint32) position {
	return position{p.name, append(slices.Clip(slices.Clone(p.path)), n)}
}
