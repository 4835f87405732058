// Package optimize rewrites a WebAssembly module for the runtime of functions: it instruments the
// code with a meter, exports the state that a reset restores, and optimises the output of Go's
// compiler for the compiler of the engine (wazero).
//
// The file is hostile: every length and index is checked before it is used, an unsupported feature
// is refused by its name, and the work on each function and on the module is bounded. Where the
// bound is reached the code stays as its producer wrote it. An accepted module still has to be
// compiled: types are left to the engine's validation.
//
// # Snapshots
//
// Active data segments and the start section are removed, so that an instance over a snapshot does
// not run them again; the host does so once. Mutable globals are exported under reserved names. The
// memory loses its declared maximum, because the engine refuses to shrink a memory at its maximum.
//
// # The meter
//
// Compiled WebAssembly has no safe points, so the code counts. A mutable global, the meter, is
// decremented by the cost of the code that follows, at function entries and loop headers. Below
// zero the code calls the function yield, which grows the memory to 4 GiB: a size that no memory
// may have, so that the request always reaches the host's allocator and means nothing else. This is
// fuel metering as wasmtime has it, with fewer checks.
//
//	loop                          loop
//	  ...                           global.get $meter
//	  br_if 0                       i32.const 12          ;; the instructions of the loop
//	end                             i32.sub
//	                                local.tee $t
//	                                global.set $meter
//	                                local.get $t
//	                                i32.const 0
//	                                i32.ge_s
//	                                if else call $yield end
//	                                ...
//	                                br_if 0
//	                              end
//
// Checks are left out where another one covers the code: at loops without a back edge, at the entry
// of a function that leads straight to its first loop, and at the entry of functions that end soon
// and call only such functions. Their callers are charged (see callGraph).
//
// # Passes
//
// The passes run in the order of this list over each function. The passes marked "Go" run only
// where the producers section names Go, because they rely on the output of Go's compiler
// (cmd/compile and cmd/internal/obj/wasm). TestToolchain names the versions of Go that this was
// verified for. A module that lies about its producer can harm only itself: the engine validates
// the result, and its own bounds checks remain.
//
// ## Peephole
//
// Go's compiler builds most conditions by negating a comparison, and computes 32-bit values in 64
// bits. The engine's compiler combines neither. A peephole pass (combineInstructions) does:
//
//	i64.eq                        i64.ne
//	i32.eqz
//
//	i64.load32_s                  i64.load32_u
//	i64.const 0xffffffff
//	i64.and
//
// ## Frame addresses (Go)
//
// The engine's compiler emits a bounds check for every access to memory unless a check of the same
// local with an offset that is not smaller dominates it (wazero, internal/engine/wazevo/frontend,
// "knownSafeBounds"). Go computes each address of its stack anew, in 64 bits. foldFrameAddresses
// interprets the code symbolically and folds constants into the offset of the access:
//
//	local.get $SP                 local.get $SP
//	i64.extend_i32_u              i64.load offset=32
//	i64.const 24
//	i64.add
//	i32.wrap_i64
//	i64.load
//
// The local of the stack pointer holds 8 less than in Go's code, so that the return address, too,
// is at an offset that is not negative: hence 32. In a frame, the first access of every basic block
// is preceded by a probe of the frame's last byte, whose check dominates the others.
//
// ## Control-flow recovery
//
// A goroutine may be suspended within a call and resumed later, so functions are entered in their
// middle. For this, Go's compiler makes every branch an indirect jump: the code lies in segments
// within one dispatch loop, and a jump sets a local to the target's index and goes back to the
// loop's header, where a br_table leads to the segment. recoverControlFlow is a relooper: it
// removes the dispatch loop and nests the segments in blocks and loops. A forward jump becomes a
// branch to the end of the block before its target; the segments from the target of a back edge up
// to its source become a loop.
//
//	loop $dispatch                block
//	  block block block             local.get $x
//	    local.get $pc               i32.eqz
//	    br_table 0 1 2              if br 1 end
//	  end                           ;; segment 1
//	  local.get $x                end
//	  i32.eqz                     ;; segment 2
//	  if
//	    i32.const 2
//	    local.set $pc
//	    br $dispatch
//	  end
//	  end
//	  ;; segment 1
//	  end
//	  ;; segment 2
//	end
//
// Each loop into whose middle control may come begins with a br_table over the resume points in it,
// which is skipped while $pc is 0. Such a table costs the engine's compiler a phi for every local
// at every resume point, so the pass finds out which segments are resume points: those behind a
// call (Go's CALL, in contrast to CALLNORESUME), and the call of runtime.deferreturn, found by a
// liveness analysis (resumePoints). Entering a loop at any other segment traps. A jump into the
// middle of a loop that evaluates its condition there is replaced by a copy of the condition (tail
// duplication, emitDuplicate), which inverts the loop:
//
//	jump to cond                  if not cond: jump to end
//	body: ...                     loop
//	cond: if c: jump to body        ...
//	end:                            if c: br to loop
//	                              end
//
// ## Conditionals
//
// Where several branches lead to one block, the engine's compiler materialises the comparison of a
// br_if in a register before it tests it, and at the end of an if without an else it forgets which
// addresses were checked. lowerConditionals writes both in the forms that it fuses:
//
//	i32.lt_s                      i32.lt_s
//	br_if 1                       if br 2 else end
//
//	if ... end                    if ... else end
//
// ## Pointer addresses (Go)
//
// foldPointerAddresses folds offsets into accesses by way of other pointers, and narrows a pointer
// that is used more than once to 32 bits once, so that checks of one local dominate its later uses.
// Where a later access of a basic block reaches farther than the first one, a probe hoists the
// check:
//
//	local.get $p                  local.get $p
//	i32.wrap_i64                  i32.wrap_i64
//	i64.load                      local.set $n
//	local.get $p                  local.get $n
//	i64.const 8                   local.tee $n
//	i64.add                       i32.load8_u offset=15 ;; the probe
//	i32.wrap_i64                  drop
//	i64.load                      local.get $n
//	                              i64.load
//	                              local.get $n
//	                              i64.load offset=8
//
// The self-assignment of the probe defeats the phi that would hide the check at a control-flow
// join. A program whose sum of pointer and offset exceeds 32 bits traps here where it wrapped
// around before. Go's programs have no such sums: no offset is larger than the addresses that Go
// leaves unused at the beginning of the memory (4,096), or the frame that the stack pointer points
// to.
//
// ## Unroll
//
// A loop of a few instructions pays more for its meter check than for its work. unrollLoops copies
// the body of small innermost loops, so that one check covers up to eight iterations:
//
//	loop                          block
//	  check                         loop
//	  code                            check
//	end                               block
//	                                    code, br 2
//	                                  end
//	                                  ...
//	                                  code
//	                                end
//	                              end
//
// In all copies but the last, a branch to the loop's header leads to the end of the copy's block,
// where the next copy begins.
package optimize
