package guest

// Alloc returns n bytes in the arena of this execution, all zero, aligned to 16. A
// response that lies there is handed to the next step as it is, without a copy, and
// so is any part of it. Where there is no arena, or it is full, the bytes are
// ordinary memory: then the response is copied, and nothing else changes.
func Alloc(n int) []byte { return hostAlloc(n) }
