package guard

import "github.com/outboard-run/outboard"

// A Batch says which part of an atomic batch of messages a message is.
type Batch struct {
	// ID distinguishes the batches of a client; "" is no batch.
	ID string
	// Part is the message's number in the batch, from 1 on.
	Part int
	// Last says that the batch ends with the message.
	Last bool
}

// batches are the batches that a client has begun and not ended. The server has room for few batches of
// all clients, and keeps one open for many seconds, so it gets a batch when that is complete.
type batches struct {
	held *holding
	all  map[string]*batch
}

// A batch is what has arrived of an atomic batch.
type batch struct {
	parts   int
	text    []byte // the operations
	refused error  // why the batch is not sent
}

// maxParts bounds the messages of a batch, as the server does.
const maxParts = 1000

var errUnordered = outboard.Errorf(outboard.Unreachable, "publish", "a part of the batch is missing: send the batch again")

// add adds an operation to its batch. It returns the whole batch with its last part, nil for others,
// and with the last part also the error for which any part was refused.
func (b *batches) add(part Batch, refused error, operation ...[]byte) (whole []byte, err error) {
	if part.Part == 1 { // The client may repeat a batch.
		b.remove(part.ID)
		if err := b.held.reserve(batchCharge); err != nil {
			return nil, err
		}
		b.all[part.ID] = new(batch)
	}
	one := b.all[part.ID]
	if one == nil {
		return nil, errUnordered
	}
	if one.parts++; refused == nil && (one.parts != part.Part || part.Part > maxParts) {
		refused = errUnordered
	}
	if refused == nil && one.refused == nil {
		refused = b.append(one, operation)
	}
	if one.refused == nil {
		one.refused = refused
	}
	if !part.Last {
		return nil, refused
	}
	b.remove(part.ID)
	return one.text, one.refused
}

// append adds an operation to a batch.
func (b *batches) append(one *batch, operation [][]byte) error {
	for _, text := range operation {
		if err := b.held.reserve(len(text)); err != nil {
			return err
		}
		one.text = append(one.text, text...)
	}
	return nil
}

// remove removes a batch, if there is one.
func (b *batches) remove(id string) {
	if one := b.all[id]; one != nil {
		b.held.release(batchCharge + len(one.text))
		delete(b.all, id)
	}
}

// publishPart relays a message of a batch, or refuses it.
func (r *relay) publishPart(part Batch, m Message, operation, body []byte, refused error) error {
	whole, err := r.batches.add(part, refused, operation, body)
	if err != nil {
		return r.answer(m.Reply, r.g.Denied(err))
	}
	return r.forward(whole)
}
