package outboardtest_test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboard-run/outboard"
	"github.com/outboard-run/outboard/client"
	"github.com/outboard-run/outboard/internal/need"
	"github.com/outboard-run/outboard/internal/train/profile"
)

// profileScript sends a profile as outboard.profile does, and one in the name of a rank of another
// node, which must be refused.
const profileScript = `
import json, os

from outboard._ranks import Error, send_file

rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
seconds = 1 + rank if os.environ.get("OUTBOARD_PROFILE") else 0
text = json.dumps({
    "version": 1, "passes": 2, "where": {"seconds": seconds}, "layers": [{"name": "a"}], "memory": {"peak": 1 << 20},
    "traceEvents": [{"name": "a", "pid": 2 * rank}],
}).encode()
for of in rank, (rank + size // 2) % size:
    try:
        send_file("profile", text, rank=of)
        print("sent" if of == rank else "sent for another rank", flush=True)
    except Error as e:
        print("refused", "no profile of rank" in str(e), flush=True)
`

// The profiles of ranks on other nodes come to the node that the job was submitted to, and from
// there to the one who asks for them.
func TestProfilesOfRanksOnOtherNodes(t *testing.T) {
	_, err := exec.LookPath("python3")
	need.Require(t, "python3", err == nil, "install python3")
	p := threeNodes(t, "trusted")
	n := deviceCount(t, p)
	spec := client.JobSpec{Ranks: n, Profile: true, Args: []string{"python3", "-c", profileScript}}
	j, lines := submit(t, p.Node("harbour"), spec, nil)
	for rank := range n {
		if !slices.Contains(lines, fmt.Sprint(rank, " sent")) || !slices.Contains(lines, fmt.Sprint(rank, " refused True")) {
			t.Fatalf("%s (%s): rank %d has not sent its own profile alone: %q", j.State, j.Reason, rank, lines)
		}
	}
	seen := 0
	err = p.Node("harbour").Client().JobProfiles(t.Context(), j.ID, func(r client.JobProfile) error {
		var got profile.Profile
		if err := json.Unmarshal(r.Profile, &got); err != nil || r.Rank != seen || got.Where.Seconds != float64(1+seen) || r.Node != nodeOfRank(&j, r.Rank) {
			t.Errorf("%v: profile %d is of rank %d on node %s: %s", err, seen, r.Rank, r.Node, r.Profile)
		}
		seen++
		return nil
	})
	if err != nil || seen != n {
		t.Errorf("%v: %d profiles of %d ranks", err, seen, n)
	}
	path := filepath.Join(t.TempDir(), "profile.json")
	out, err := p.Node("harbour").Command(t.Context(), "jobs", "show", j.ID, "--profile", path).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "a pass of rank 0 took 1s") || !strings.Contains(string(out), "west") {
		t.Errorf("%v: %s", err, out)
	}
	merged, err := profile.ReadFile(path)
	if err != nil || len(merged.Ranks) != n || merged.Ranks[n-1].Node != "west" || merged.Ranks[n-1].Where.Seconds != float64(n) {
		t.Errorf("%v: %+v", err, merged)
	}
	if _, err := p.Node("east").Command(t.Context(), "jobs", "show", j.ID, "--profile", path).CombinedOutput(); err == nil {
		t.Error("another node has shown profiles that it does not have")
	}
	spec.Profile = false
	if j, lines = submit(t, p.Node("harbour"), spec, nil); slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, " sent") }) {
		t.Errorf("%s (%s): a job without a profile has one: %q", j.State, j.Reason, lines)
	}
}

func nodeOfRank(j *client.Job, rank int) outboard.NodeID {
	for _, r := range j.Ranks {
		if rank >= r.First && rank < r.First+r.Count {
			return r.Node
		}
	}
	return ""
}
