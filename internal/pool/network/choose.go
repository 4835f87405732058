package network

import (
	"cmp"
	"hash/fnv"
	"slices"
	"strconv"

	"github.com/outboard-run/outboard"
)

// Peer is another node of the pool.
type Peer struct {
	ID   outboard.NodeID
	Addr string
	// Fingerprint is of the node's key.
	Fingerprint string
	// Lends says that the node has devices, Leased that it shares a lease with this node.
	Lends, Leased bool
}

// Peers is the largest number of nodes that a node probes; Rotating of these change with each
// epoch.
const (
	Peers    = 8
	Rotating = 2
)

// choose returns the peers that self probes in an epoch, in the order of their names.
func choose(self outboard.NodeID, peers []Peer, epoch int64) []Peer {
	ranked := func(salt string) []Peer {
		ranks := make(map[outboard.NodeID]uint64, len(peers))
		for _, p := range peers {
			ranks[p.ID] = rank(self, p.ID, salt)
		}
		sorted := slices.Clone(peers)
		slices.SortFunc(sorted, func(a, b Peer) int {
			return cmp.Or(
				-cmp.Compare(bit(a.Leased), bit(b.Leased)), -cmp.Compare(bit(a.Lends), bit(b.Lends)),
				cmp.Compare(ranks[a.ID], ranks[b.ID]), cmp.Compare(a.ID, b.ID),
			)
		})
		return sorted
	}
	if len(peers) <= Peers {
		return sortByID(slices.Clone(peers))
	}
	chosen := ranked("")[:Peers-Rotating]
	for _, p := range ranked(strconv.FormatInt(epoch, 10)) {
		if len(chosen) == Peers {
			break
		}
		if !slices.Contains(chosen, p) {
			chosen = append(chosen, p)
		}
	}
	return sortByID(chosen)
}

func sortByID(peers []Peer) []Peer {
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
}

// rank orders peers differently for each node (rendezvous hashing, Thaler and Ravishankar, 1998).
func rank(self, peer outboard.NodeID, salt string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(string(self) + "\x00" + string(peer) + "\x00" + salt))
	// FNV's high bits of short inputs are alike: mix them (splitmix64).
	x := h.Sum64()
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
