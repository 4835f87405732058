package state

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/outboard-run/outboard/internal/pool/guard"
)

// batchHeaders begins the names of the headers of a message of a batch.
const batchHeaders = "Nats-Batch-"

// batchOf returns of which batch of a log a message is: the server has batches in no other stream. Of a
// message whose headers parseBatch refuses it returns none.
func batchOf(m guard.Message) guard.Batch {
	rest, isLog := strings.CutPrefix(m.Subject, logSubjectPrefix)
	if !isLog {
		return guard.Batch{}
	}
	b, ok := parseBatch(m.Header)
	if !ok || b.ID == "" {
		return guard.Batch{}
	}
	log, _, _ := strings.Cut(rest, ".")
	b.ID = log + "." + b.ID
	return b
}

// parseBatch parses the headers of a message of a batch. The server must read them in the same way, so
// each has one spelling: one that it did not understand would leave the batch open there.
func parseBatch(header []byte) (b guard.Batch, ok bool) {
	if !bytes.Contains(header, []byte(batchHeaders)) {
		return guard.Batch{}, true
	}
	seen := map[string]string{}
	for line := range strings.Lines(string(header)) {
		name, value, _ := strings.Cut(strings.TrimSuffix(line, "\r\n"), ": ")
		if !strings.HasPrefix(name, batchHeaders) {
			continue
		}
		if _, twice := seen[name]; twice || value == "" || strings.Contains(value, " ") {
			return guard.Batch{}, false
		}
		seen[name] = value
	}
	commit, ends := seen[batchCommitHeader]
	part, err := strconv.Atoi(seen[batchSeqHeader])
	b = guard.Batch{ID: seen[batchIDHeader], Part: part, Last: ends}
	return b, err == nil && strconv.Itoa(part) == seen[batchSeqHeader] && part > 0 && b.ID != "" && len(b.ID) <= maxBatchID && (!ends || commit == "1")
}

// maxBatchID bounds the id of a batch, as the server does.
const maxBatchID = 64
