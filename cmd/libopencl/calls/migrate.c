/* migrate.c: clEnqueueMigrateMemObjects. Layer: calls. */
#include "calls.h"

enum { MIGRATION_FLAGS = CL_MIGRATE_MEM_OBJECT_HOST | CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED, FEW = 32 };

static int32_t check_migrate(cl_command_queue queue, cl_uint count, const cl_mem *objects, cl_mem_migration_flags flags) {
	if (count == 0 || !objects)
		return CL_INVALID_VALUE;
	for (cl_uint i = 0; i < count; i++) {
		if (!api_valid(objects[i], KIND_MEM))
			return CL_INVALID_MEM_OBJECT;
		if (objects[i]->context != queue->context)
			return CL_INVALID_CONTEXT;
	}
	return flags & ~(cl_mem_migration_flags)MIGRATION_FLAGS ? CL_INVALID_VALUE : 0;
}

/* With undefined contents the object becomes current on the command's link without a copy. */
static int32_t migrate_one(struct command *c, cl_mem m, cl_mem_migration_flags flags) {
	if ((flags & CL_MIGRATE_MEM_OBJECT_CONTENT_UNDEFINED) && m == m->root)
		return command_replaces(c, m);
	return command_reads(c, m);
}

static int32_t migrate_send(struct command *c, cl_uint count, const cl_mem *objects, cl_mem_migration_flags flags) {
	uint64_t room[FEW], *ids = count <= FEW ? room : malloc(count * sizeof *ids);
	int32_t status = ids ? 0 : CL_OUT_OF_HOST_MEMORY;
	for (cl_uint i = 0; status == 0 && i < count; i++) {
		ids[i] = api_id(objects[i]);
		status = migrate_one(c, objects[i], flags);
	}
	if (status == 0)
		status = send_clEnqueueMigrateMemObjects(c->session, NULL, api_id(c->queue), ids, count, flags, c->waits, c->wait_count, c->event);
	if (ids != room)
		free(ids);
	return status;
}

cl_int ob_clEnqueueMigrateMemObjects(cl_command_queue queue, cl_uint count, const cl_mem *objects, cl_mem_migration_flags flags, cl_uint wait_count, const cl_event *list, cl_event *event) {
	struct command c;
	int32_t status = check_migrate(queue, count, objects, flags);
	if (status == 0)
		status = command_begin(&c, queue, CL_COMMAND_MIGRATE_MEM_OBJECTS, wait_count, list, event);
	return status ? status : command_end(&c, migrate_send(&c, count, objects, flags));
}
