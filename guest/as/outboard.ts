// The library for functions written in AssemblyScript.
//
//   import { request, respond, Bytes } from "./outboard";
//   export { outboard_arena } from "./outboard";
//
//   export function handle(): i32 {
//     return respond(Bytes.ofText("hello " + request().text()));
//   }
//
//   asc app.ts -o app.wasm -O3 --runtime stub --use abort=outboard/abort --use seed=outboard/seed
//
// Every request begins with the memory as it was at the start. So variables may be
// written to freely, and no memory needs to be freed: use "stub", the runtime that never
// frees.

@external("outboard", "request_size") declare function requestSize(): i32;
@external("outboard", "request_read") declare function requestRead(to: usize, size: i32, offset: i32): i32;
@external("outboard", "request_offset") declare function requestOffset(): i64;
@external("outboard", "response_write") declare function responseWrite(from: usize, size: i32): i32;
@external("outboard", "response_place") declare function responsePlace(offset: i32, size: i32): i32;
@external("outboard", "arena_alloc") declare function arenaAlloc(size: i32): i32;
@external("outboard", "import") declare function importResource(name: usize, size: i32): i32;
@external("outboard", "drop") declare function dropResource(handle: i32): void;
@external("outboard", "result_size") declare function resultSize(): i32;
@external("outboard", "result_read") declare function resultRead(to: usize, size: i32, offset: i32): i32;
@external("outboard", "call") declare function callFunction(handle: i32, from: usize, size: i32): i32;
@external("outboard", "secret") declare function readSecret(handle: i32): i32;
@external("outboard", "bucket_get") declare function bucketGet(handle: i32, key: usize, size: i32): i64;
@external("outboard", "bucket_txn") declare function bucketTxn(handle: i32, from: usize, size: i32): i32;
@external("outboard", "arena_map") declare function arenaMap(handle: i32): i32;
@external("outboard", "device_info") declare function deviceInfo(handle: i32): i32;
@external("outboard", "device_do") declare function deviceDo(handle: i32, from: usize, size: i32): i32;
@external("outboard", "meta") declare function metaOf(name: usize, size: i32): i32;
@external("wasi_snapshot_preview1", "fd_write") declare function fdWrite(fd: i32, parts: usize, count: i32, written: usize): i32;
@external("wasi_snapshot_preview1", "random_get") declare function randomGet(to: usize, size: i32): i32;

/** Bytes in memory, for example in the arena of an execution. */
export class Bytes {
  constructor(public pointer: usize, public size: i32) {}

  /** Allocates that many zero bytes. */
  static make(size: i32): Bytes {
    return new Bytes(changetype<usize>(new ArrayBuffer(size)), size);
  }

  /** A text in UTF-8. */
  static ofText(text: string): Bytes {
    const buffer = String.UTF8.encode(text);
    return new Bytes(changetype<usize>(buffer), buffer.byteLength);
  }

  /** The contents of a typed array. */
  static of(array: Uint8Array): Bytes {
    return new Bytes(array.dataStart, array.byteLength);
  }

  /** The bytes as text. */
  text(): string {
    return String.UTF8.decodeUnsafe(this.pointer, this.size);
  }

  /** The bytes as an array, a copy. */
  array(): Uint8Array {
    const array = new Uint8Array(this.size);
    memory.copy(array.dataStart, this.pointer, this.size);
    return array;
  }

  /** The part from one offset up to another. */
  part(from: i32, to: i32): Bytes {
    if (from < 0 || to < from || to > this.size) throw new RangeError("no such part");
    return new Bytes(this.pointer + from, to - from);
  }

  @operator("[]") get(at: i32): u8 {
    if (<u32>at >= <u32>this.size) throw new RangeError("no such byte");
    return load<u8>(this.pointer + at);
  }

  @operator("[]=") set(at: i32, value: u8): void {
    if (<u32>at >= <u32>this.size) throw new RangeError("no such byte");
    store<u8>(this.pointer + at, value);
  }
}

// Where the host maps the arena of an execution.
let windowStart: usize = 0;
let windowSize: usize = 0;

/** Called by the host once, before the first request. The module's entry exports it. */
export function outboard_arena(size: i32): i32 {
  const page: usize = 4096;
  windowStart = (heap.alloc(<usize>size + page) + page - 1) & ~(page - 1);
  windowSize = size;
  return <i32>windowStart;
}

/** Allocates bytes in the arena of this execution, aligned to 16. A response in the arena is
 *  passed on without a copy. Without an arena, it is ordinary memory. */
export function alloc(size: i32): Bytes {
  const at = windowSize > 0 ? arenaAlloc(size) : -1;
  return at < 0 ? Bytes.make(size) : new Bytes(windowStart + at, size);
}

/** The request: in the arena, without a copy, or in ordinary memory. */
export function request(): Bytes {
  const size = requestSize();
  const at: i64 = windowSize > 0 ? requestOffset() : -1;
  if (at >= 0) return new Bytes(windowStart + <usize>at, size);
  const bytes = Bytes.make(size);
  requestRead(bytes.pointer, size, 0);
  return bytes;
}

/** Sets the response. handle returns the result. */
export function respond(bytes: Bytes): i32 {
  const at = bytes.pointer - windowStart;
  if (bytes.size > 0 && bytes.pointer >= windowStart && at < windowSize) {
    if (responsePlace(<i32>at, bytes.size) == 0) return 0;
  }
  responseWrite(bytes.pointer, bytes.size);
  return 0;
}

/** Sets an error as the response. handle returns the result. */
export function fail(why: string): i32 {
  const bytes = Bytes.ofText(why);
  responseWrite(bytes.pointer, bytes.size);
  return 1;
}

/** The result of the last call of the host: a value, or the text of an error. */
export function result(): Bytes {
  const bytes = Bytes.make(resultSize());
  resultRead(bytes.pointer, bytes.size, 0);
  return bytes;
}

/** The metadata of this call: "method", a header, a parameter of the path; null if the key
 *  does not exist. */
export function meta(name: string): string | null {
  const key = Bytes.ofText(name);
  return metaOf(key.pointer, key.size) == 0 ? null : result().text();
}

/** A resource of the app that is imported by name: "function:price", "bucket:seats",
 *  "arena:photos", "secret:token", "device:gpu". */
export class Resource {
  handle: i32;

  /** ok is true if the import was allowed; if not, result() is the reason. */
  constructor(name: string) {
    const key = Bytes.ofText(name);
    this.handle = importResource(key.pointer, key.size);
  }

  get ok(): bool {
    return this.handle != 0;
  }

  close(): void {
    dropResource(this.handle);
    this.handle = 0;
  }
}

/** Calls another function; null if it failed: then result() is the reason. */
export function call(name: string, bytes: Bytes): Bytes | null {
  const callee = new Resource("function:" + name);
  if (!callee.ok || callFunction(callee.handle, bytes.pointer, bytes.size) != 0) return null;
  return result();
}

/** A secret of the app; null if it is not available: then result() is the reason. */
export function secret(name: string): Bytes | null {
  const resource = new Resource("secret:" + name);
  if (!resource.ok || readSecret(resource.handle) != 0) return null;
  return result();
}

/** A named arena; null if it is not available: then result() is the reason. */
export function arena(name: string): Bytes | null {
  const resource = new Resource("arena:" + name);
  const at = resource.ok ? arenaMap(resource.handle) : 0;
  return at == 0 ? null : new Bytes(<usize>at, <i32>load<u64>(result().pointer));
}

/** A bucket: a key-value store of the pool. */
export class Bucket extends Resource {
  /** The revision that get found last, 0 if the key does not exist. */
  revision: i64 = 0;

  constructor(name: string) {
    super("bucket:" + name);
  }

  /** A key's value; null if there is none, or if revision is negative: then result() is
   *  the reason. */
  get(key: string): Bytes | null {
    const bytes = Bytes.ofText(key);
    this.revision = bucketGet(this.handle, bytes.pointer, bytes.size);
    return this.revision > 0 ? result() : null;
  }

  /** Executes all operations or none. 0: done. 1: a condition is not met, result() is its
   *  index. 2: an error, result() is its text. */
  commit(txn: Txn): i32 {
    const bytes = txn.bytes();
    return bucketTxn(this.handle, bytes.pointer, bytes.size);
  }
}

/** The operations of a transaction. */
export class Txn {
  private pieces: Uint8Array[] = [];

  put(key: string, value: Bytes): Txn {
    return this.append(1, key, 0, value);
  }

  delete(key: string): Txn {
    return this.append(2, key, 0, new Bytes(0, 0));
  }

  /** Adds to a decimal number, on the condition that the sum is at least least. */
  add(key: string, delta: i64, least: i64): Txn {
    return this.append(3, key, delta, Bytes.ofText(least.toString()));
  }

  /** The condition that the key does not exist. */
  missing(key: string): Txn {
    return this.append(4, key, 0, new Bytes(0, 0));
  }

  /** The condition that the key has this revision. */
  at(key: string, revision: i64): Txn {
    return this.append(5, key, revision, new Bytes(0, 0));
  }

  /** Sets a key's value, on the condition that the key does not exist. */
  putNew(key: string, value: Bytes): Txn {
    return this.append(6, key, 0, value);
  }

  /**
   * Sets a key's value with a time to live in milliseconds, 1000 at least. add keeps the
   * remaining time to live; any put replaces it.
   */
  putFor(key: string, value: Bytes, milliseconds: i64): Txn {
    return this.append(7, key, milliseconds, value);
  }

  private append(code: u8, key: string, number: i64, value: Bytes): Txn {
    const name = Bytes.ofText(key);
    const piece = new Uint8Array(17 + name.size + value.size);
    let at = piece.dataStart;
    store<u8>(at, code);
    store<u32>(at + 1, name.size);
    memory.copy(at + 5, name.pointer, name.size);
    at += 5 + name.size;
    store<i64>(at, number);
    store<u32>(at + 8, value.size);
    memory.copy(at + 12, value.pointer, value.size);
    this.pieces.push(piece);
    return this;
  }

  /** The operations in the format of Outboard's docs/design/0007. */
  bytes(): Bytes {
    let size = 0;
    for (let i = 0; i < this.pieces.length; i++) size += this.pieces[i].byteLength;
    const all = Bytes.make(size);
    let at = all.pointer;
    for (let i = 0; i < this.pieces.length; i++) {
      memory.copy(at, this.pieces[i].dataStart, this.pieces[i].byteLength);
      at += this.pieces[i].byteLength;
    }
    return all;
  }
}

/** An accelerator of the pool, which runs kernels in OpenCL C. */
export class Device extends Resource {
  constructor(name: string) {
    super("device:" + name);
  }

  /** The device's description, as JSON; null if it is not available: then result() is the
   *  reason. */
  info(): Bytes | null {
    return deviceInfo(this.handle) == 0 ? result() : null;
  }

  /** Executes all commands and waits for them; false if one failed: then result() is the
   *  reason. */
  run(commands: Commands): bool {
    const bytes = commands.bytes();
    return deviceDo(this.handle, bytes.pointer, bytes.size) == 0;
  }
}

/** Arguments of a kernel, in their order. */
export class Args {
  pieces: Pieces = new Pieces();
  count: u8 = 0;

  buffer(number: u32): Args {
    this.pieces.u8(2).u32(number);
    return this.next();
  }

  /** That many bytes of local memory for each work group. */
  local(size: u64): Args {
    this.pieces.u8(3).u64(size);
    return this.next();
  }

  /** Bytes with the representation of the kernel's parameter on the device. */
  bytes(value: Bytes): Args {
    this.pieces.u8(1).bytes(value);
    return this.next();
  }

  /** A number of the type that the kernel's parameter has: number<u32>(7). */
  number<T>(value: T): Args {
    const size = sizeof<T>();
    const bytes = Bytes.make(<i32>size);
    store<T>(bytes.pointer, value);
    return this.bytes(bytes);
  }

  private next(): Args {
    this.count++;
    return this;
  }
}

/** A list of commands for a device, executed in order. The function identifies buffers and
 *  programs by numbers of its choice; they live until the device is closed. Bytes that are
 *  written or read must not move until the commands were executed. */
export class Commands {
  private pieces: Pieces = new Pieces();

  /** Allocates a buffer, whose contents are zero. */
  buffer(number: u32, size: u64): Commands {
    this.pieces.u8(1).u32(number).u64(size);
    return this;
  }

  /** Replaces a part of a buffer. */
  write(number: u32, offset: u64, from: Bytes): Commands {
    this.pieces.u8(7).u32(number).u64(offset).u32(<u32>from.pointer).u32(from.size);
    return this;
  }

  /** Builds a program. */
  program(number: u32, source: string, options: string = ""): Commands {
    this.pieces.u8(3).u32(number).bytes(Bytes.ofText(source)).bytes(Bytes.ofText(options));
    return this;
  }

  /** Runs a kernel for each item of a grid of one to three dimensions. Without group sizes
   *  the driver chooses them. */
  launch(program: u32, kernel: string, global: u64[], args: Args, local: u64[] = []): Commands {
    this.pieces.u8(4).u32(program).bytes(Bytes.ofText(kernel)).u8(<u8>global.length);
    for (let i = 0; i < global.length; i++) this.pieces.u64(global[i]);
    for (let i = 0; i < global.length; i++) this.pieces.u64(i < local.length ? local[i] : 0);
    this.pieces.u8(args.count).add(args.pieces);
    return this;
  }

  /** Copies a part of a buffer into the bytes. */
  read(number: u32, offset: u64, to: Bytes): Commands {
    this.pieces.u8(8).u32(number).u64(offset).u32(<u32>to.pointer).u32(to.size);
    return this;
  }

  /** Releases a buffer's memory. */
  free(number: u32): Commands {
    this.pieces.u8(6).u32(number);
    return this;
  }

  /** The commands in the format of Outboard's docs/design/0007. */
  bytes(): Bytes {
    return this.pieces.all();
  }
}

/** A growing sequence of bytes. */
class Pieces {
  private room: Uint8Array = new Uint8Array(256);
  private used: i32 = 0;

  u8(n: u8): Pieces {
    store<u8>(this.more(1), n);
    return this;
  }

  u32(n: u32): Pieces {
    store<u32>(this.more(4), n);
    return this;
  }

  u64(n: u64): Pieces {
    store<u64>(this.more(8), n);
    return this;
  }

  /** Appends the size, and the bytes. */
  bytes(b: Bytes): Pieces {
    this.u32(b.size);
    memory.copy(this.more(b.size), b.pointer, b.size);
    return this;
  }

  add(other: Pieces): Pieces {
    memory.copy(this.more(other.used), other.room.dataStart, other.used);
    return this;
  }

  all(): Bytes {
    return new Bytes(this.room.dataStart, this.used);
  }

  private more(size: i32): usize {
    const at = this.used;
    this.used += size;
    if (this.used > this.room.byteLength) {
      const room = new Uint8Array(2 * this.used);
      memory.copy(room.dataStart, this.room.dataStart, at);
      this.room = room;
    }
    return this.room.dataStart + at;
  }
}

/** Writes a line to standard error, which becomes part of the call's log. */
export function log(text: string): void {
  const bytes = Bytes.ofText(text + "\n");
  const part = memory.data(12);
  store<u32>(part, <u32>bytes.pointer);
  store<u32>(part + 4, bytes.size);
  fdWrite(2, part, 1, part + 8);
}

/** Replaces the host's "abort": logs the message, and traps. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  const why = message === null ? "abort" : message;
  const where = file === null ? "" : file + ":" + line.toString() + ":" + column.toString() + ": ";
  log(where + why);
  unreachable();
}

/** Replaces the host's "seed", for Math.random. */
export function seed(): f64 {
  const to = memory.data(8);
  randomGet(to, 8);
  return load<f64>(to);
}
