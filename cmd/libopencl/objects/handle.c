/* handle.c: recognises which eight bytes are a handle, without dereferencing them. Layer: objects.
 *
 * Used where neither the driver nor the source declares a kernel argument's type.
 */
#include "kernel.h"
#include "library.h"

enum { SLOTS = 1024 };

/* Where objects were seen. Entries may be old: the id decides. */
static struct {
	_Atomic uintptr_t address;
	_Atomic uint64_t id;
} seen[SLOTS];

static size_t slot_of(uintptr_t address) { return (address >> 4) * 0x9e3779b97f4a7c15u >> 54; }
_Static_assert(SLOTS == 1 << (64 - 54), "the slot's bits");

static void see(void *object, void *wanted) {
	struct object *o = object;
	if (object != wanted)
		return;
	size_t slot = slot_of((uintptr_t)o);
	atomic_store(&seen[slot].address, (uintptr_t)o);
	atomic_store(&seen[slot].id, o->id);
}

/* The object that was last seen there, if it still lives. */
static struct object *recall(const void *address) {
	size_t slot = slot_of((uintptr_t)address);
	if (atomic_load(&seen[slot].address) != (uintptr_t)address)
		return NULL;
	struct object *o = object_find(atomic_load(&seen[slot].id), 0);
	if (o && (o != address || (o->kind != KIND_MEM && o->kind != KIND_SAMPLER && o->kind != KIND_QUEUE))) {
		object_drop(o);
		o = NULL;
	}
	return o;
}

struct object *handle_find(const void *address) {
	uintptr_t a = (uintptr_t)address;
	if (a < 65536 || a % 16 != 0 || a >> 47) /* no address of malloc's: most numbers end here */
		return NULL;
	struct object *o = recall(address);
	static const uint32_t kinds[] = {KIND_MEM, KIND_SAMPLER, KIND_QUEUE};
	for (size_t i = 0; !o && i < sizeof kinds / sizeof *kinds; i++) {
		object_each(kinds[i], see, (void *)a);
		o = recall(address);
	}
	return o;
}
