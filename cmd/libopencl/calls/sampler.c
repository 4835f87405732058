/* sampler.c: samplers. Layer: calls. */
#include "calls.h"

struct sampler_plan {
	cl_bool normalized;
	cl_addressing_mode addressing;
	cl_filter_mode filter;
	size_t properties; /* in the list, with the closing 0 */
};

static int32_t check_sampler(cl_context context, const struct sampler_plan *p) {
	if (!context_has(context, CL_DEVICE_IMAGE_SUPPORT))
		return CL_INVALID_OPERATION;
	if (p->normalized != CL_TRUE && p->normalized != CL_FALSE)
		return CL_INVALID_VALUE;
	if (p->addressing < CL_ADDRESS_NONE || p->addressing > CL_ADDRESS_MIRRORED_REPEAT)
		return CL_INVALID_VALUE;
	if (p->filter != CL_FILTER_NEAREST && p->filter != CL_FILTER_LINEAR)
		return CL_INVALID_VALUE;
	int repeats = p->addressing == CL_ADDRESS_REPEAT || p->addressing == CL_ADDRESS_MIRRORED_REPEAT;
	return repeats && !p->normalized ? CL_INVALID_VALUE : 0; /* repeating needs normalised coordinates */
}

static void sampler_destroy(void *object) {
	cl_sampler s = object;
	free(s->properties.data);
	object_drop(s->context);
}

/* The sampler is sent as clCreateSampler, which every driver has: it can express all forwarded
 * properties. */
static cl_sampler sampler_new(cl_context context, const struct sampler_plan *p, const cl_sampler_properties *properties, cl_int *errcode_ret) {
	int32_t status = check_sampler(context, p);
	cl_sampler s = status == 0 ? object_new(sizeof *s, KIND_SAMPLER, context->o.links, sampler_destroy) : NULL;
	if (!s)
		return mem_fail(status ? status : CL_OUT_OF_HOST_MEMORY, errcode_ret);
	object_hold(s->context = context);
	s->normalized = p->normalized;
	s->addressing = p->addressing;
	s->filter = p->filter;
	struct creation creation = {0, CL_OUT_OF_HOST_MEMORY};
	if (properties && (s->properties.data = malloc(p->properties * sizeof *properties))) {
		s->properties.size = p->properties * sizeof *properties;
		memcpy(s->properties.data, properties, s->properties.size);
	}
	struct link *link;
	if (!properties || s->properties.data)
		FOR_LINKS(link, s->o.links)
			creation_note(&creation, send_clCreateSampler(link->session, NULL, context->o.id, p->normalized, p->addressing, p->filter, s->o.id));
	if (creation.sent == 0) {
		object_drop(s);
		return mem_fail(creation.status, errcode_ret);
	}
	if (errcode_ret)
		*errcode_ret = CL_SUCCESS;
	return s;
}

cl_sampler ob_clCreateSampler(cl_context context, cl_bool normalized, cl_addressing_mode addressing, cl_filter_mode filter, cl_int *errcode_ret) {
	struct sampler_plan p = {normalized, addressing, filter, 0};
	return sampler_new(context, &p, NULL, errcode_ret);
}

static int sampler_property(struct sampler_plan *p, cl_sampler_properties name, cl_sampler_properties value) {
	switch (name) {
	case CL_SAMPLER_NORMALIZED_COORDS:
		p->normalized = (cl_bool)value;
		return 1;
	case CL_SAMPLER_ADDRESSING_MODE:
		p->addressing = (cl_addressing_mode)value;
		return 2;
	case CL_SAMPLER_FILTER_MODE:
		p->filter = (cl_filter_mode)value;
		return 4;
	default:
		return 0;
	}
}

cl_sampler ob_clCreateSamplerWithProperties(cl_context context, const cl_sampler_properties *properties, cl_int *errcode_ret) {
	struct sampler_plan p = {CL_TRUE, CL_ADDRESS_CLAMP, CL_FILTER_NEAREST, 0};
	const cl_sampler_properties *at = properties;
	for (int seen = 0, bit; at && *at; at += 2, seen |= bit) {
		bit = sampler_property(&p, at[0], at[1]);
		if (bit == 0 || (seen & bit)) /* unknown, or twice */
			return mem_fail(CL_INVALID_VALUE, errcode_ret);
	}
	p.properties = properties ? (size_t)(at - properties) + 1 : 0;
	return sampler_new(context, &p, properties, errcode_ret);
}

cl_int ob_clRetainSampler(cl_sampler s) { return object_retain(s); }

cl_int ob_clReleaseSampler(cl_sampler s) { return object_release(s); }

cl_int ob_clGetSamplerInfo(cl_sampler s, cl_sampler_info name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (name) {
	case CL_SAMPLER_REFERENCE_COUNT:
		INFO(cl_uint, atomic_load(&s->o.refs));
	case CL_SAMPLER_CONTEXT:
		INFO(cl_context, s->context);
	case CL_SAMPLER_NORMALIZED_COORDS:
		INFO(cl_bool, s->normalized);
	case CL_SAMPLER_ADDRESSING_MODE:
		INFO(cl_addressing_mode, s->addressing);
	case CL_SAMPLER_FILTER_MODE:
		INFO(cl_filter_mode, s->filter);
	case CL_SAMPLER_PROPERTIES:
		return info_answer(s->properties.data, s->properties.size, param_value_size, param_value, param_value_size_ret);
	default:
		return CL_INVALID_VALUE;
	}
}
