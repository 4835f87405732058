package model

// A Sequence identifies the sequence to which a request belongs, for engines that hold state between
// its requests. The zero value stands for a request that belongs to none.
type Sequence struct {
	// Number is the same for all requests of a sequence, and differs between sequences. It is
	// positive, since not all servers accept larger numbers.
	Number int64
	// Start and End mark the first and the last request.
	Start, End bool
}
