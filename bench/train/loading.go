package main

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/outboard-run/outboard/bench/paired"
	"github.com/outboard-run/outboard/bench/rig"
)

// The dataset of the measurement: the number and the size of its files, the time in seconds that a
// rank computes with each, and the rate of the link in bit/s.
const (
	loadedFiles   = 48
	loadedSize    = 1 << 20
	loadedCompute = "0.02"
	loadedBits    = 2e8
)

// loading measures how two ranks of one node read a dataset from a bucket over a bounded link: by
// their own requests, and through the node.
func (b *bench) loading(ctx context.Context) error {
	// The address of the rig's third node, which the others need before the store runs.
	const url = "s3://bench/?endpoint=http://10.77.0.3:" + storePort
	objects := append([]string{"--objects", url}, jobsAllowed...)
	r, err := rig.Start(ctx, rig.Options{
		Binary: b.binary, Dir: filepath.Join(b.Dir, "loaders"),
		Nodes: []rig.Spec{{Name: "harbour", Args: objects}, {Name: "dinghy", Args: objects, Devices: "none"}, {Name: storeName, Bare: true}},
	})
	if err != nil {
		return err
	}
	defer r.Close()
	if !strings.Contains(r.Where(), "namespaces") {
		b.note("Loading from a store was not measured: it needs network namespaces (root).")
		return nil
	}
	_, end, err := b.startStore(ctx, r)
	if err != nil {
		return err
	}
	defer end()
	if err := r.Node("harbour").Shape(ctx, loadedBits, rig.BucketSize); err != nil {
		return err
	}
	var own, node []loaded
	for round := range b.Rounds(5, 2) {
		for _, how := range []struct {
			name string
			all  *[]loaded
		}{{"own", &own}, {"node", &node}} {
			one, err := b.load(ctx, r, how.name, fmt.Sprintf("%s-%d", how.name, round))
			if err != nil {
				return err
			}
			*how.all = append(*how.all, one)
		}
	}
	rate := func(all []loaded) (list []float64) {
		for _, l := range all {
			list = append(list, 1e-6*float64(l.Bytes)/l.Seconds)
		}
		return list
	}
	b.Row(paired.NewRow("loading from a bucket at 200 Mbit/s, two ranks of a node, two epochs: through the node against requests of the ranks",
		"MB/s", "own requests", rate(node), rate(own), paired.Goal{MinRatio: 1.3}))
	b.note(fmt.Sprintf("Loading: the dataset is %d files of 1 MiB; in each epoch each rank reads another half in random order, verifies it and computes "+
		"%s s with each file. Processor time of rank 0: %.2f s through the node, %.2f s with requests of its own.",
		loadedFiles, loadedCompute, median(node), median(own)))
	return nil
}

// A loaded is the output of rank 0 of loading.py.
type loaded struct {
	Seconds   float64 `json:"seconds"`
	Processor float64 `json:"processor"`
	Bytes     int     `json:"bytes"`
}

func median(all []loaded) float64 {
	var list []float64
	for _, l := range all {
		list = append(list, l.Processor)
	}
	return paired.Median(list)
}

// load pushes a new dataset to the other node, and lets ranks read it.
func (b *bench) load(ctx context.Context, r *rig.Rig, how, dataset string) (l loaded, err error) {
	folder := filepath.Join(b.Dir, dataset)
	if err := writeFiles(folder); err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	if _, err := r.Node("dinghy").Output(ctx, "datasets", "push", folder, dataset); err != nil {
		return l, err
	}
	script, err := b.script("loading.py")
	if err != nil {
		return l, err
	}
	list, err := results(r.Node("harbour").Command(ctx, "train", "--ranks", "2", "--ranks-per-device", "2", "--device", "type=cpu",
		"--dataset", dataset, "--stream", "--", b.python, script, how, "http://10.77.0.3:"+storePort+"/bench", loadedCompute))
	if err != nil {
		return l, err
	}
	return l, json.Unmarshal(list[0].text, &l)
}

// writeFiles writes files whose names are the digests of their contents.
func writeFiles(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	content := make([]byte, loadedSize)
	for range loadedFiles {
		if _, err := rand.Read(content); err != nil {
			return err
		}
		sum := sha256.Sum256(content)
		if err := os.WriteFile(filepath.Join(folder, hex.EncodeToString(sum[:])), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}
