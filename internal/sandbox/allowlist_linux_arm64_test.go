package sandbox

// foreignBit is 0: there is no other instruction set.
const foreignBit = 0

// uncalledNative is as uncalled.
var uncalledNative []uint32
