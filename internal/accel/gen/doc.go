// Package gen generates the code that forwards an accelerator API from the API's description.
//
// A description is a text file with one statement per line; parameters are indented below their
// call. Omitted parts of a line follow from the C type: an object kind is sent as its id, a scalar
// as a word.
//
//	api NAME PREFIX            headers H...  the first declares the functions
//	table HEADER STRUCT        driver SONAME
//	kind CTYPE NAME ERROR      an object kind, and the error of an invalid handle
//	type {u8,i32,u32,i64,u64} CTYPE...
//
//	call RESULT NAME SINCE ANSWER [auto] [check] [worker] [recorded] [command CONSTANT]
//	    CTYPE NAME [: TREATMENT]
//	    callback NAME          a function pointer; stays with the client
//	    + NAME : TREATMENT     a field that only the wire has
//	message NAME ANSWER        a message of the protocol, client to worker
//	notice NAME                a message of the protocol, worker to client
//	facts CALL FORM CONSTANT...  queries answered in advance; FORM is text, list or a size. Those of
//	                           a message are what the worker offers with it
//	part [NAME]                the field of the worker that executes the `worker` calls
//	                           below; without a name the worker itself
//
// ANSWER determines which side answers a call and when:
//
//	local         the client alone
//	cached        the client, from facts that it has received; else as wait
//	early         the client at once; the worker executes it later, in order
//	wait          the worker; the client waits
//	wait(PARAM)   wait when PARAM is true, else early
//	refused       the client, with the error that the API has for it
//
// auto generates the client's entry point wholly from the description, for commands of a queue;
// check adds a call of a hand-written check of its arguments. worker means that the worker's side
// is written by hand; recorded, that a hand-written function adds to the call's record in a trace.
//
// TREATMENT:
//
//	value TYPE | handle [KIND] [null] | handles COUNT [null] | array COUNT [null]
//	bytes SIZE [null] | string [null] | props       zero-terminated list of words
//	bulk in | bulk out                              streamed after the body
//	reads | writes                                  a handle, and how a command accesses the object
//	late                                            a handle that the function checks itself, after other errors
//	count                                           implied by an array
//	new                                             pointer to a handle that the client assigns
//	errcode                                         pointer to the result code
//	query                                           with the next two: size, value, size_ret
//	list SIZE                                       with the next two: entries, array, count_ret
//	out value TYPE | out bytes | out array u32
//	local                                           stays with the client
//
// Names and C types are checked against the installed headers: names by parsing the headers, types
// by compiling assertions with the C compiler.
package gen
