/* kernel_info.c: queries of kernels, answered mostly from the facts of the build. Layer: calls. */
#include "calls.h"

/* Answers with the worker's reply, and frees it. */
static int32_t answer_blob(uint16_t op, uint32_t param, int32_t status, struct blob *value, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	if (status == 0 && !fact_complete(op, param, value))
		status = CL_OUT_OF_HOST_MEMORY;
	if (status == 0)
		status = info_answer(value->data, value->size, param_value_size, param_value, param_value_size_ret);
	free(value->data);
	return status;
}

/* Returns the link that answers queries with the same answer on all links: the one with the most
 * complete facts. */
static const struct kernel_on *main_on(cl_kernel k) {
	for (uint32_t i = 0; i < k->on_count; i++)
		if (k->on[i].shape == k->shape)
			return &k->on[i];
	return &k->on[0];
}

cl_int ob_clGetKernelInfo(cl_kernel k, cl_kernel_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	switch (param_name) {
	case CL_KERNEL_REFERENCE_COUNT:
		INFO(cl_uint, atomic_load(&k->o.refs));
	case CL_KERNEL_CONTEXT:
		INFO(cl_context, k->program->context);
	case CL_KERNEL_PROGRAM:
		INFO(cl_program, k->program);
	}
	const struct kernel_on *on = main_on(k);
	int32_t status;
	size_t size;
	const void *fact = facts_find(on->outcome->facts, OP_clGetKernelInfo, on->shape->number, 0, 0, param_name, &status, &size);
	if (fact)
		return status ? status : info_answer(fact, size, param_value_size, param_value, param_value_size_ret);
	struct blob value = {0};
	status = call_clGetKernelInfo(on->link->session, k->o.id, param_name, &value);
	return answer_blob(OP_clGetKernelInfo, param_name, status, &value, param_value_size, param_value, param_value_size_ret);
}

cl_int ob_clGetKernelArgInfo(cl_kernel k, cl_uint arg_indx, cl_kernel_arg_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	if (arg_indx >= k->shape->arg_count)
		return CL_INVALID_ARG_INDEX;
	const struct kernel_on *on = main_on(k);
	if (on->outcome->text->arg_info_hidden)
		return CL_KERNEL_ARG_INFO_NOT_AVAILABLE;
	int32_t status;
	size_t size;
	const void *fact = arg_indx <= UINT16_MAX ? facts_find(on->outcome->facts, OP_clGetKernelArgInfo, on->shape->number, 0, (uint16_t)arg_indx, param_name, &status, &size) : NULL;
	if (fact)
		return status ? status : info_answer(fact, size, param_value_size, param_value, param_value_size_ret);
	struct blob value = {0};
	status = call_clGetKernelArgInfo(on->link->session, k->o.id, arg_indx, param_name, &value);
	return answer_blob(OP_clGetKernelArgInfo, param_name, status, &value, param_value_size, param_value, param_value_size_ret);
}

/* Finds the device of a query: NULL is allowed when there is only one. */
static int32_t find_device(cl_kernel k, cl_device_id *device, const struct kernel_on **on) {
	if (!*device && k->program->device_count != 1)
		return CL_INVALID_DEVICE;
	if (!*device)
		*device = k->program->devices[0];
	*on = program_has_device(k->program, *device) ? kernel_on_link(k, (*device)->link) : NULL;
	return *on ? 0 : CL_INVALID_DEVICE;
}

/* Returns true for answers that depend on the values of the arguments, or are not among the
 * facts. */
static int depends(cl_kernel k, cl_kernel_work_group_info name) {
	return name == CL_KERNEL_GLOBAL_WORK_SIZE || (name == CL_KERNEL_LOCAL_MEM_SIZE && atomic_load(&k->locals));
}

cl_int ob_clGetKernelWorkGroupInfo(cl_kernel k, cl_device_id device, cl_kernel_work_group_info param_name, size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	const struct kernel_on *on;
	int32_t status = find_device(k, &device, &on);
	if (status != 0)
		return status;
	size_t size;
	const void *fact = depends(k, param_name) ? NULL : facts_find(on->outcome->facts, OP_clGetKernelWorkGroupInfo, on->shape->number, device->o.id, 0, param_name, &status, &size);
	if (fact)
		return status ? status : info_answer(fact, size, param_value_size, param_value, param_value_size_ret);
	struct blob value = {0};
	status = call_clGetKernelWorkGroupInfo(on->link->session, k->o.id, device->o.id, param_name, &value);
	return answer_blob(OP_clGetKernelWorkGroupInfo, param_name, status, &value, param_value_size, param_value, param_value_size_ret);
}

cl_int ob_clGetKernelSubGroupInfo(cl_kernel k, cl_device_id device, cl_kernel_sub_group_info param_name, size_t input_value_size, const void *input_value,
				  size_t param_value_size, void *param_value, size_t *param_value_size_ret) {
	const struct kernel_on *on;
	int32_t status = find_device(k, &device, &on);
	if (status != 0)
		return status;
	struct blob value = {0};
	status = call_clGetKernelSubGroupInfo(on->link->session, k->o.id, device->o.id, param_name, input_value, input_value ? input_value_size : 0, &value);
	return answer_blob(OP_clGetKernelSubGroupInfo, param_name, status, &value, param_value_size, param_value, param_value_size_ret);
}
