package gateway

import (
	"context"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"syscall"

	"github.com/outboard-run/outboard"
)

// statusGone is the status in logs and metrics of a request whose client disconnected.
const statusGone = 499

// limited is an error that names the limit that was exceeded.
type limited interface {
	error
	LimitName() string
}

// limitOf returns the name of the exceeded limit, "" for none.
func limitOf(err error) string {
	if l, ok := errors.AsType[limited](err); ok {
		return l.LimitName()
	}
	return ""
}

// Status returns the HTTP status for an error.
func Status(err error) int {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return http.StatusGatewayTimeout
	case errors.Is(err, context.Canceled):
		return statusGone
	}
	if code, ok := statusOfMachine(err); ok {
		return code
	}
	kind := outboard.KindOf(err)
	if kind == outboard.Exhausted {
		return statusOfLimit(limitOf(err))
	}
	return statusOf(kind)
}

func statusOf(kind outboard.Kind) int {
	switch kind {
	case outboard.Invalid:
		return http.StatusBadRequest
	case outboard.NotFound:
		return http.StatusNotFound
	case outboard.Denied:
		return http.StatusForbidden
	case outboard.Conflict:
		return http.StatusConflict
	case outboard.Busy:
		return http.StatusTooManyRequests
	case outboard.Protocol:
		return http.StatusBadGateway
	case outboard.NoDevice, outboard.LeaseLost, outboard.Unreachable, outboard.SessionLost, outboard.NoPool, outboard.Exhausted:
		return http.StatusServiceUnavailable
	case outboard.Other:
	}
	return http.StatusInternalServerError
}

// statusOfLimit distinguishes limits of time and of memory from limits that may be free later.
func statusOfLimit(name string) int {
	switch name {
	case "deadline", "fuel":
		return http.StatusGatewayTimeout
	case "memory", "response", "arena", "storage":
		return http.StatusInsufficientStorage
	}
	return http.StatusServiceUnavailable
}

// statusOfMachine returns the status for an error of the machine's files: it is not the client's
// fault, and a later request may succeed.
func statusOfMachine(err error) (int, bool) {
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return http.StatusInsufficientStorage, true
	case isFileError(err):
		return http.StatusServiceUnavailable, true
	}
	return 0, false
}

// isFileError reports whether an error names a file of this machine.
func isFileError(err error) bool {
	_, path := errors.AsType[*fs.PathError](err)
	_, link := errors.AsType[*os.LinkError](err)
	return path || link
}
