package profile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/outboard-run/outboard"
)

// A Rank is the profile of one rank as its process has written it.
type Rank struct {
	Rank int
	// Node is the rank's node, "" for this machine.
	Node string
	Text []byte
}

// A Summary says where the time and the memory of one rank go.
type Summary struct {
	Rank   int    `json:"rank"`
	Node   string `json:"node,omitempty"`
	Passes int    `json:"passes"`
	Where  Where  `json:"where"`
	Memory Memory `json:"memory"`
}

// CheckFile returns an error if a file of a rank can't be a profile.
func CheckFile(f *os.File) error {
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case !info.Mode().IsRegular():
		return outboard.Errorf(outboard.Invalid, "save a profile", "it is no regular file")
	case info.Size() > MaxSize:
		return outboard.Errorf(outboard.Exhausted, "save a profile", "it has %v, at most %v", outboard.Bytes(info.Size()), outboard.Bytes(MaxSize))
	}
	return nil
}

// ReadRank returns the content of a file that a rank has sent.
func ReadRank(f *os.File, rank int) (Rank, error) {
	if err := CheckFile(f); err != nil {
		return Rank{}, err
	}
	text, err := io.ReadAll(io.NewSectionReader(f, 0, MaxSize+1)) // The rank may change it meanwhile.
	return Rank{Rank: rank, Text: text}, err
}

// Merge returns the profile of several ranks as one file: that of the first rank, with a summary of
// each and the traces of all, as far as they fit into a file.
func Merge(ranks []Rank) ([]byte, error) {
	if len(ranks) == 0 {
		return nil, errors.New("no rank has sent a profile")
	}
	ranks = slices.Clone(ranks)
	slices.SortFunc(ranks, func(a, b Rank) int { return a.Rank - b.Rank })
	var whole map[string]json.RawMessage
	var events []json.RawMessage
	var summaries []Summary
	size := 0
	for i, r := range ranks {
		p, err := Read(bytes.NewReader(r.Text))
		if err != nil {
			return nil, fmt.Errorf("rank %d: %w", r.Rank, err)
		}
		summaries = append(summaries, Summary{Rank: r.Rank, Node: r.Node, Passes: p.Passes, Where: p.Where, Memory: p.Memory})
		members := map[string]json.RawMessage{}
		if err := json.Unmarshal(r.Text, &members); err != nil {
			return nil, fmt.Errorf("rank %d: %w", r.Rank, err)
		}
		if i == 0 {
			whole = members
		}
		var own []json.RawMessage
		if err := json.Unmarshal(members["traceEvents"], &own); err == nil && size+len(members["traceEvents"]) < MaxSize/2 {
			events, size = append(events, own...), size+len(members["traceEvents"])
		}
	}
	return encode(whole, summaries, events)
}

// encode returns a profile with the summaries and traces of all ranks.
func encode(whole map[string]json.RawMessage, summaries []Summary, events []json.RawMessage) (text []byte, err error) {
	if whole["ranks"], err = json.Marshal(summaries); err != nil {
		return nil, err
	}
	if whole["traceEvents"], err = json.Marshal(events); err != nil {
		return nil, err
	}
	return json.Marshal(whole)
}
