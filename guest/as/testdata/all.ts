// A function for tests that uses everything in outboard.ts: the first word of a request
// selects the operation.
import { alloc, arena, Args, Bucket, Bytes, call, Commands, Device, fail, log, meta, request, respond, Resource, result, secret, Txn } from "../outboard";
export { outboard_arena } from "../outboard";

let calls = 0;

function text(s: string): i32 {
  return respond(Bytes.ofText(s));
}

function orFail(bytes: Bytes | null): i32 {
  return bytes === null ? fail(result().text()) : respond(bytes);
}

function book(who: string): i32 {
  const seats = new Bucket("seats");
  if (!seats.ok) return fail(result().text());
  const done = seats.commit(new Txn().putNew(who, Bytes.ofText("math")).add("free", -1, 0).put("last", Bytes.ofText(who)).putFor("recent", Bytes.ofText(who), 3600000).missing("closed"));
  if (done != 0) return fail(done.toString() + " " + result().text());
  if (seats.get("nobody") !== null || seats.revision != 0) return fail("found");
  const free = seats.get("free");
  if (free === null) return fail("lost");
  const before = new Txn().at("free", seats.revision).delete("never");
  return text(free.text() + " " + seats.commit(before).toString());
}

function shared(bytes: Bytes): i32 {
  const photos = arena("photos");
  if (photos === null) return fail(result().text());
  const before = photos.part(0, 4).text();
  for (let i = 0; i < bytes.size; i++) photos[i] = bytes[i];
  return text(photos.size.toString() + " " + before);
}

// kernel converts a text to capitals on a device, and counts its letters.
function kernel(bytes: Bytes): i32 {
  const gpu = new Device("gpu");
  if (!gpu.ok) return fail(result().text());
  const size = bytes.size;
  const capitals = Bytes.make(size), count = Bytes.make(4);
  const commands = new Commands()
    .buffer(1, size).write(1, 0, bytes).buffer(2, 4).program(1, "kernel void upper()", "-w")
    .launch(1, "upper", [size], new Args().buffer(1).buffer(2).number<u32>(100).local(16), [1])
    .read(1, 0, capitals).read(2, 0, count).free(2);
  if (!gpu.run(commands)) return fail(result().text());
  const info = gpu.info();
  gpu.close();
  return info === null ? fail("no info") : text(capitals.text() + " " + load<u32>(count.pointer).toString() + " " + info.text());
}

export function handle(): i32 {
  calls++;
  const all = request();
  const line = all.text();
  const space = line.indexOf(" ");
  const verb = space < 0 ? line : line.substring(0, space);
  const rest = space < 0 ? all.part(all.size, all.size) : all.part(space + 1, all.size);
  if (verb == "count") return text(calls.toString());
  if (verb == "part") return respond(rest);
  if (verb == "copy") {
    const bytes = alloc(rest.size);
    memory.copy(bytes.pointer, rest.pointer, rest.size);
    return respond(bytes);
  }
  if (verb == "array") return respond(Bytes.of(rest.array().reverse()));
  if (verb == "fail") return fail(rest.text());
  if (verb == "throw") throw new Error(rest.text());
  if (verb == "bounds") return text(rest[rest.size].toString());
  if (verb == "log") {
    log(rest.text());
    return 0;
  }
  if (verb == "random") return text(Math.random().toString());
  if (verb == "call") return orFail(call("price", rest));
  if (verb == "secret") return orFail(secret(rest.text()));
  if (verb == "book") return book(rest.text());
  if (verb == "kernel") return kernel(rest);
  if (verb == "arena") return shared(rest);
  if (verb == "import") {
    const resource = new Resource(rest.text());
    if (!resource.ok) return fail(result().text());
    resource.close();
    return text("imported");
  }
  if (verb == "meta") {
    const value = meta(rest.text());
    return value === null ? fail("none") : text(value);
  }
  return fail("no verb " + verb);
}
