// Package outgoing makes the calls of workflows to HTTP services: the DSL's call: http, and
// call: openapi, which finds the request of an operation in an OpenAPI document (3.x, or Swagger
// 2.0).
//
// A request is sent once. A failure is a *dsl.Error, which a workflow catches by its fields: a
// status outside of 200 to 299 is an error of communication with that status; a request that the
// rules of the transport refuse is an error of authorization with 403; a request that takes too
// long is an error of timeout with 408. Credentials are not part of any result.
package outgoing
