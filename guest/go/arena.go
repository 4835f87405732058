package guest

// Alloc returns n zero bytes in the execution's arena, aligned to 16. A response in the
// arena, or any part of it, is passed to the next step without a copy. If there is no
// arena, or it is full, the bytes are ordinary memory: the response is copied then, and
// nothing else changes.
func Alloc(n int) []byte { return hostAlloc(n) }
