package main

import (
	"bytes"
	"strconv"
)

// This function is called so often that it encodes HTTP itself. Other functions use package web.

func body(message []byte) []byte {
	_, body, _ := bytes.Cut(message, []byte("\r\n\r\n"))
	return bytes.TrimSpace(body)
}

func reason(status int) string {
	switch status {
	case 200:
		return " OK"
	case 201:
		return " Created"
	case 400:
		return " Bad Request"
	case 404:
		return " Not Found"
	case 409:
		return " Conflict"
	}
	return " "
}

func respond(status int, body string) []byte { return write(status, "application/json", body) }

func problem(status int, why string) ([]byte, error) {
	return write(status, "application/problem+json", `{"status":`+strconv.Itoa(status)+`,"title":"`+why+`"}`), nil
}

func write(status int, kind, body string) []byte {
	b := make([]byte, 0, 128+len(body))
	b = append(b, "HTTP/1.1 "...)
	b = strconv.AppendInt(b, int64(status), 10)
	b = append(b, reason(status)...)
	b = append(b, "\r\nContent-Type: "...)
	b = append(b, kind...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	b = append(b, "\r\n\r\n"...)
	return append(b, body...)
}

// safe reports whether a word may be a part of a key and of a response.
func safe(word string) bool {
	for _, c := range []byte(word) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return word != "" && len(word) <= 64
}

func digits(b []byte) bool {
	for _, c := range b {
		if c < '0' || c > '9' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= 9
}
