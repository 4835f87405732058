/* build.c: compiles and links programs, on all their links in parallel. Layer: calls.
 *
 * With a callback the call returns at once, and a helper thread waits and calls back; without one
 * the caller waits.
 */
#include "calls.h"

enum step { BUILD, COMPILE, LINK };

struct build {
	enum step step;
	cl_program program;        /* held */
	cl_uint device_count;
	cl_device_id *devices;     /* NULL: all devices of the program */
	uint64_t links;
	struct build_text *text;
	cl_program *inputs;        /* headers or programs; held */
	uint64_t *input_ids;
	cl_uint input_count;
	struct blob input_names;   /* include_names */
	PFN_program notify;
	void *user_data;
};

/* A build on one link. */
struct part {
	struct build *build;
	struct link *link;
	pthread_t thread;
	int started;
	int32_t status;
	struct blob facts;
};

static const char *sent_options(const struct build *b) { return b->text->headers.options; }

static int32_t call_step(struct part *t, const uint64_t *ids, uint64_t count) {
	struct build *b = t->build;
	const struct includes *in = &b->text->headers;
	uint64_t program = b->program->o.id;
	switch (b->step) {
	case BUILD:
		return call_clBuildProgram(t->link->session, program, ids, count, sent_options(b), in->files, in->files_size, &t->facts);
	case COMPILE:
		return call_clCompileProgram(t->link->session, program, ids, count, sent_options(b), b->input_count ? b->input_ids : NULL, b->input_count, b->input_names.data,
					     b->input_names.size, in->files, in->files_size, &t->facts);
	default:
		return call_clLinkProgram(t->link->session, b->program->context->o.id, ids, count, sent_options(b), b->input_ids, b->input_count, program, &t->facts);
	}
}

static void *build_part(void *argument) {
	struct part *t = argument;
	struct build *b = t->build;
	uint64_t *ids = b->devices ? malloc(b->device_count * sizeof *ids) : NULL;
	if (b->devices && !ids)
		t->status = CL_OUT_OF_HOST_MEMORY;
	else
		t->status = call_step(t, ids, ids ? devices_on(t->link, b->device_count, b->devices, ids) : 0);
	free(ids);
	return NULL;
}

/* Returns true when the driver has started the build, which discards the program's earlier
 * state. */
static int began(const struct part *t) {
	return t->facts.size || (t->build->step != LINK && t->status != CL_INVALID_OPERATION && t->status != CL_INVALID_VALUE && !session_dead(t->link->session));
}

/* Stores the outcome of a link. Without facts, queries go to the worker. */
static void store_part(struct part *t) {
	struct build *b = t->build;
	struct outcome *o = began(t) ? outcome_new(t->link, &t->facts, b->text) : NULL;
	if (o)
		program_set_outcome(b->program, t->link->index, o);
	if (t->status == 0 && (!o || !o->facts))
		t->status = CL_OUT_OF_HOST_MEMORY;
	if (b->step == LINK && !o) /* no program was created on the link */
		b->program->o.links &= ~t->link->bit;
}

/* Builds on all but the first link run on threads of their own, or one after the other without
 * threads. */
static int32_t build_all(struct build *b) {
	struct part parts[LINKS];
	size_t count = 0;
	struct link *l;
	FOR_LINKS(l, b->links)
		parts[count++] = (struct part){.build = b, .link = l};
	for (size_t i = 1; i < count; i++)
		parts[i].started = thread_start_blocked(&parts[i].thread, build_part, &parts[i]) == 0;
	for (size_t i = 0; i < count; i++)
		if (!parts[i].started)
			build_part(&parts[i]);
	int32_t status = 0;
	for (size_t i = 0; i < count; i++) {
		if (parts[i].started)
			pthread_join(parts[i].thread, NULL);
		store_part(&parts[i]);
		status = status ? status : parts[i].status;
	}
	return status;
}

/* Stores a failed build with the reason in its log: there are too many headers. */
static int32_t build_refused(struct build *b) {
	struct link *l;
	FOR_LINKS(l, b->links) {
		struct blob none = {0};
		struct outcome *o = outcome_new(l, &none, b->text);
		if (o)
			program_set_outcome(b->program, l->index, o);
	}
	return b->step == COMPILE ? CL_INVALID_COMPILER_OPTIONS : CL_INVALID_BUILD_OPTIONS;
}

static int32_t build_run(struct build *b) {
	int32_t status = b->text->headers.refusal ? build_refused(b) : build_all(b);
	atomic_store(&b->program->building, 0);
	return status;
}

static void build_free(struct build *b) {
	for (cl_uint i = 0; b->inputs && i < b->input_count; i++)
		object_drop(b->inputs[i]);
	free(b->inputs);
	free(b->input_ids);
	free(b->input_names.data);
	free(b->devices);
	build_text_drop(b->text);
	if (b->program)
		object_drop(b->program);
	free(b);
}

static void build_helped(void *argument) {
	struct build *b = argument;
	build_run(b);
	b->notify(b->program, b->user_data);
	build_free(b);
}

/* Takes ownership of b. */
static int32_t build_execute(struct build *b) {
	if (b->notify && helper_start(build_helped, b) == 0)
		return 0;
	PFN_program notify = b->notify;
	cl_program program = b->program;
	void *user_data = b->user_data;
	int32_t status = build_run(b);
	if (notify) /* no thread could be created */
		notify(program, user_data);
	build_free(b);
	return notify ? 0 : status;
}

static int copy_devices(struct build *b, cl_uint count, const cl_device_id *devices) {
	if (!devices)
		return 0;
	b->devices = malloc(count * sizeof *devices);
	b->device_count = count;
	if (b->devices)
		memcpy(b->devices, devices, count * sizeof *devices);
	return b->devices ? 0 : -1;
}

static int copy_inputs(struct build *b, cl_uint count, const cl_program *inputs) {
	b->inputs = calloc(count + 1, sizeof *inputs);
	b->input_ids = calloc(count + 1, sizeof *b->input_ids);
	if (!b->inputs || !b->input_ids)
		return -1;
	for (; b->input_count < count; b->input_count++) {
		cl_program p = inputs[b->input_count];
		b->inputs[b->input_count] = p;
		b->input_ids[b->input_count] = p->o.id;
		object_hold(p);
	}
	return 0;
}

/* Encodes a count, then each name as an array of bytes. */
static int copy_names(struct build *b, cl_uint count, const char **names) {
	size_t size = 8;
	for (cl_uint i = 0; i < count; i++)
		size += 8 + wire_padded(strlen(names[i]));
	unsigned char *at = b->input_names.data = count ? calloc(1, size) : NULL;
	b->input_names.size = count ? size : 0;
	if (!at)
		return count ? -1 : 0;
	uint64_t n = count;
	memcpy(at, &n, 8);
	at += 8;
	for (cl_uint i = 0; i < count; i++) {
		n = strlen(names[i]);
		memcpy(at, &n, 8);
		memcpy(at + 8, names[i], n);
		at += 8 + wire_padded(n);
	}
	return 0;
}

/* Searches in the program's source and in the headers passed as programs. */
static int find_headers(struct build *b, const char *options) {
	struct include_source *sources = calloc(b->input_count + 1, sizeof *sources);
	size_t count = 0;
	if (!sources)
		return -1;
	for (cl_uint i = 0; i <= b->input_count; i++) {
		cl_program p = i ? b->inputs[i - 1] : b->program;
		if (p->source.data)
			sources[count++] = (struct include_source){(const char *)p->source.data, p->source.size - 1};
	}
	int status = includes_find(&b->text->headers, options, sources, count, NULL);
	free(sources);
	return status;
}

/* Requests the types of kernel arguments, without which clSetKernelArg could not check its
 * arguments: many drivers keep them only with this option. clGetKernelArgInfo hides them from a
 * program that has not requested them. */
static int add_arg_info(struct build *b) {
	static const char option[] = "-cl-kernel-arg-info";
	cl_program p = b->program;
	int supported = p->source.data != NULL;
	for (cl_uint i = 0; i < p->device_count; i++)
		supported &= device_version(p->devices[i]) >= 12;
	if (!supported || b->text->headers.refusal || options_have(b->text->options, option, NULL))
		return 0;
	const char *old = b->text->headers.options ? b->text->headers.options : "";
	char *all = malloc(strlen(old) + sizeof option + 1);
	if (!all)
		return -1;
	stpcpy(stpcpy(stpcpy(all, old), *old ? " " : ""), option);
	free(b->text->headers.options);
	b->text->headers.options = all;
	b->text->arg_info_added = b->text->arg_info_hidden = 1;
	return 0;
}

/* A linked program has the argument types of its inputs, whether or not they were requested. */
static void inherit_arg_info(struct build *b) {
	struct link *l;
	for (cl_uint i = 0; i < b->input_count; i++)
		FOR_LINKS(l, b->inputs[i]->o.links) {
			struct outcome *o = program_outcome(b->inputs[i], l->index);
			b->text->arg_info_hidden |= o && o->text->arg_info_hidden;
			outcome_drop(o);
		}
}

/* The options of a link step name no directories and are sent unchanged. */
static int copy_options(struct build *b, const char *options) {
	b->text = build_text_new(options);
	if (!b->text)
		return -1;
	if (b->step != LINK && (b->program->source.data || (options && strstr(options, "-I"))))
		return find_headers(b, options) != 0 ? -1 : add_arg_info(b);
	if (b->step == LINK)
		inherit_arg_info(b);
	b->text->headers.options = options ? strdup(options) : NULL;
	return options && !b->text->headers.options ? -1 : 0;
}

struct build_args {
	enum step step;
	cl_uint device_count;
	const cl_device_id *devices;
	const char *options;
	cl_uint input_count;
	const cl_program *inputs;
	const char **names;
	PFN_program notify;
	void *user_data;
};

/* Returns NULL when there is no memory. */
static struct build *build_new(cl_program p, const struct build_args *w) {
	struct build *b = calloc(1, sizeof *b);
	if (!b)
		return NULL;
	b->step = w->step;
	b->program = p;
	object_hold(p);
	b->links = w->devices ? devices_links(w->device_count, w->devices) : p->o.links;
	b->notify = w->notify;
	b->user_data = w->user_data;
	if (copy_devices(b, w->device_count, w->devices) || copy_inputs(b, w->input_count, w->inputs) || copy_names(b, w->names ? w->input_count : 0, w->names) ||
	    copy_options(b, w->options)) {
		build_free(b);
		return NULL;
	}
	return b;
}

static int32_t check_devices(cl_program p, cl_uint count, const cl_device_id *devices) {
	for (cl_uint i = 0; i < count; i++)
		if (!program_has_device(p, devices[i]))
			return CL_INVALID_DEVICE;
	return 0;
}

static int32_t check_values(const struct build_args *w) {
	return (w->device_count == 0) != (w->devices == NULL) || (!w->notify && w->user_data) ? CL_INVALID_VALUE : 0;
}

static int32_t check_inputs(cl_uint count, const cl_program *inputs) {
	for (cl_uint i = 0; i < count; i++)
		if (!api_valid(inputs[i], KIND_PROGRAM))
			return CL_INVALID_PROGRAM;
	return 0;
}

/* Refuses a second build at a time, and any build while the program has kernels. */
static int32_t build_start(cl_program p, const struct build_args *w) {
	int32_t status = check_devices(p, w->device_count, w->devices);
	if (status != 0)
		return status;
	if (w->step == COMPILE && p->origin != FROM_SOURCE && p->origin != FROM_IL)
		return CL_INVALID_OPERATION;
	uint32_t idle = 0;
	if (atomic_load(&p->kernels) || !atomic_compare_exchange_strong(&p->building, &idle, 1))
		return CL_INVALID_OPERATION;
	struct build *b = build_new(p, w);
	if (!b) {
		atomic_store(&p->building, 0);
		return CL_OUT_OF_HOST_MEMORY;
	}
	return build_execute(b);
}

cl_int ob_clBuildProgram(cl_program p, cl_uint num_devices, const cl_device_id *device_list, const char *options, PFN_clBuildProgram notify, void *user_data) {
	const struct build_args w = {.step = BUILD, .device_count = num_devices, .devices = device_list, .options = options, .notify = notify, .user_data = user_data};
	int32_t status = check_values(&w);
	return status ? status : build_start(p, &w);
}

cl_int ob_clCompileProgram(cl_program p, cl_uint num_devices, const cl_device_id *device_list, const char *options, cl_uint num_input_headers,
			   const cl_program *input_headers, const char **header_include_names, PFN_clCompileProgram notify, void *user_data) {
	const struct build_args w = {COMPILE, num_devices, device_list, options, num_input_headers, input_headers, header_include_names, notify, user_data};
	if ((num_input_headers == 0) != (input_headers == NULL) || (num_input_headers == 0) != (header_include_names == NULL))
		return CL_INVALID_VALUE;
	int32_t status = check_values(&w);
	if (status == 0)
		status = check_inputs(num_input_headers, input_headers);
	return status ? status : build_start(p, &w);
}

static int32_t check_link(cl_context context, const struct build_args *w) {
	if (w->input_count == 0 || !w->inputs || (w->device_count == 0) != (w->devices == NULL))
		return CL_INVALID_VALUE;
	int32_t status = check_inputs(w->input_count, w->inputs);
	if (status == 0)
		status = check_values(w);
	return status || !w->devices ? status : devices_check(context, w->device_count, w->devices);
}

/* With a callback the program is returned at once, before its status is known. */
static cl_program link_start(cl_context context, const struct build_args *w, int32_t *status) {
	cl_program p = program_new(context, FROM_LINK, w->device_count, w->devices);
	struct build *b = p ? build_new(p, w) : NULL;
	if (!b) {
		if (p)
			object_release(p);
		*status = CL_OUT_OF_HOST_MEMORY;
		return NULL;
	}
	atomic_store(&p->building, 1);
	*status = build_execute(b);
	if (*status == 0 || p->o.links) /* it exists on a link, if only for its log */
		return p;
	object_release(p);
	return NULL;
}

cl_program ob_clLinkProgram(cl_context context, cl_uint num_devices, const cl_device_id *device_list, const char *options, cl_uint num_input_programs,
			    const cl_program *input_programs, PFN_clLinkProgram notify, void *user_data, cl_int *errcode_ret) {
	const struct build_args w = {LINK, num_devices, device_list, options, num_input_programs, input_programs, NULL, notify, user_data};
	int32_t status = check_link(context, &w);
	cl_program p = status == 0 ? link_start(context, &w, &status) : NULL;
	if (errcode_ret)
		*errcode_ret = status;
	return p;
}
