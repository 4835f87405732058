package launch

import (
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/internal/train/threads"
	"github.com/outboard-run/outboard/internal/train/tiers"
)

// Resources are the resources of its node that each rank may use, as a job states them.
type Resources struct {
	// Threads is "", "auto" or a number: threads.Environ. Offload has the limits of saved tensors:
	// tiers.ParseLimits.
	Threads, Offload string
	// StageLimit is the time limit of a pipeline stage's process as time.ParseDuration reads it, "" for
	// none. Another process continues after it: on another node if ",elsewhere" follows the time and
	// a device of another node is free.
	StageLimit string
}

const (
	// stageLimitVariable has the time limit of a rank's process, in seconds, and elsewhereVariable
	// says that the next process may run on another node.
	stageLimitVariable = "OUTBOARD_STAGE_LIMIT"
	elsewhereVariable  = "OUTBOARD_STAGE_ELSEWHERE"
	// elsewhere is the word behind the time.
	elsewhere = "elsewhere"
)

// Limit returns the time limit of a stage's process, 0 for none. The resources must have been
// checked.
func (r Resources) Limit() time.Duration {
	text, _, _ := strings.Cut(r.StageLimit, ",")
	d, _ := time.ParseDuration(text) // 0 if there is none.
	return d
}

// Elsewhere reports whether the next process of a stage may run on another node. The resources must
// have been checked.
func (r Resources) Elsewhere() bool { return strings.HasSuffix(r.StageLimit, ","+elsewhere) }

func (r Resources) checkLimit() error {
	text, word, hasWord := strings.Cut(r.StageLimit, ",")
	d, err := time.ParseDuration(text)
	if r.StageLimit != "" && (err != nil || d <= 0 || hasWord && word != elsewhere) {
		return outboard.Errorf(outboard.Invalid, "", "stage-limit: %.40q: want a time such as 15m, or 15m,%s", r.StageLimit, elsewhere)
	}
	return nil
}

// Check returns an error if the texts are malformed, else the resources with sizes in bytes.
func (r Resources) Check() (Resources, error) {
	limits, err := tiers.ParseLimits(r.Offload)
	if err != nil {
		return r, fmt.Errorf("offload: %w", err)
	}
	if err := threads.Check(r.Threads); err != nil {
		return r, fmt.Errorf("threads: %w", err)
	}
	if err := r.checkLimit(); err != nil {
		return r, err
	}
	r.Offload = limits.String()
	return r, nil
}

// Environ returns the variables of a rank that shares the processors with others of its node. The
// resources must have been checked.
func (r Resources) Environ(processors, ranks int) map[string]string {
	env := maps.Clone(threads.Environ(r.Threads, processors, ranks))
	if r.Offload != "" {
		env[tiers.Variable] = r.Offload
	}
	if d := r.Limit(); d > 0 {
		env[stageLimitVariable] = strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
	}
	if r.Elsewhere() {
		env[elsewhereVariable] = "1"
	}
	return env
}

// CheckRoom returns an error if the file system of a folder has no room for the files of that many
// ranks, or does not report its room.
func (r Resources) CheckRoom(folder string, ranks int) error {
	limits, err := tiers.ParseLimits(r.Offload)
	if limits == nil || err != nil || limits[tiers.Disk] == 0 {
		return err
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(folder, &fs); err != nil {
		return fmt.Errorf("find the room in %s: %w", folder, err)
	}
	each, count := outboard.Bytes(limits[tiers.Disk]), outboard.Bytes(ranks)
	free := outboard.Bytes(fs.Bavail) * outboard.Bytes(fs.Bsize)
	if free/count < each {
		return outboard.Errorf(outboard.Exhausted, "", "%d ranks with disk=%v need %v in %s, which has %v: make room, or give disk=%v or less",
			ranks, each, each*count, folder, free, free/count)
	}
	return nil
}
