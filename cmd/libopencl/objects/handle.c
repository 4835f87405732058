/* handle.c: determines whether eight bytes are a handle, without dereferencing them.
 * Layer: objects.
 *
 * Used where neither the driver nor the source declares a kernel argument's type. */
#include "kernel.h"
#include "library.h"

enum { SLOTS = 1024 };

/* Addresses of recently found objects. Entries may be stale: the id decides. */
static struct {
	_Atomic uintptr_t address;
	_Atomic uint64_t id;
} recent[SLOTS];

static size_t slot_of(uintptr_t address) { return (address >> 4) * 0x9e3779b97f4a7c15u >> 54; }
_Static_assert(SLOTS == 1 << (64 - 54), "the slot's bits");

static void remember_if_wanted(void *object, void *wanted) {
	struct object *o = object;
	if (object != wanted)
		return;
	size_t slot = slot_of((uintptr_t)o);
	atomic_store(&recent[slot].address, (uintptr_t)o);
	atomic_store(&recent[slot].id, o->id);
}

/* Returns the object that was last found at the address, if it is alive. */
static struct object *recall(const void *address) {
	size_t slot = slot_of((uintptr_t)address);
	if (atomic_load(&recent[slot].address) != (uintptr_t)address)
		return NULL;
	struct object *o = object_find(atomic_load(&recent[slot].id), 0);
	if (o && (o != address || (o->kind != KIND_MEM && o->kind != KIND_SAMPLER && o->kind != KIND_QUEUE))) {
		object_drop(o);
		o = NULL;
	}
	return o;
}

struct object *handle_find(const void *address) {
	uintptr_t a = (uintptr_t)address;
	if (a < 65536 || a % 16 != 0 || a >> 47) /* not an address that malloc returns: excludes most numbers */
		return NULL;
	struct object *o = recall(address);
	static const uint32_t kinds[] = {KIND_MEM, KIND_SAMPLER, KIND_QUEUE};
	for (size_t i = 0; !o && i < sizeof kinds / sizeof *kinds; i++) {
		object_each(kinds[i], remember_if_wanted, (void *)a);
		o = recall(address);
	}
	return o;
}
