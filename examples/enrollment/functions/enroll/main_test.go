package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	guest "github.com/outboard-run/outboard/guest/go"
	"github.com/outboard-run/outboard/guest/go/guesttest"
)

// ask calls the function as the gateway does, and returns its status and body.
func ask(t *testing.T, host *guesttest.Host, meta map[string]string, content string) string {
	t.Helper()
	host.Values = meta
	seats.Close() // each call begins without imports
	message, err := guest.Call([]byte(meta["method"] + " / HTTP/1.1\r\nHost: a\r\n\r\n" + content))
	if err != nil {
		t.Fatal(err)
	}
	p, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(message)), nil)
	if err != nil {
		t.Fatalf("%v: %q", err, message)
	}
	defer p.Body.Close()
	body, err := io.ReadAll(p.Body)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(p.StatusCode, " ", string(body))
}

func put(course, student, id string) map[string]string {
	return map[string]string{"method": "PUT", "course": course, "student": student, "Request-Id": id}
}

func TestEnroll(t *testing.T) {
	host := guesttest.Start(t)
	bucket := host.Bucket("seats")
	for _, tt := range []struct {
		meta          map[string]string
		content, want string
	}{
		{map[string]string{"method": "GET", "course": "math"}, "", `404 {"status":404,"title":"there is no such course"}`},
		{put("math", "ann", "0"), "", `409 {"status":409,"title":"no seat is free"}`},
		{map[string]string{"method": "POST", "course": "math"}, "many", `400 {"status":400,"title":"how many seats? A number is wanted"}`},
		{map[string]string{"method": "POST", "course": "math"}, "2\n", `201 {"course":"math"}`},
		{map[string]string{"method": "POST", "course": "math"}, "9", `409 {"status":409,"title":"the course is open already"}`},
		{put("math", "ann", "1"), "", `201 {"course":"math","student":"ann"}`},
		{put("math", "ann", "1"), "", `200 {"course":"math","student":"ann"}`},
		{put("math", "ann", "2"), "", `409 {"status":409,"title":"the student is enrolled already"}`},
		{put("math", "bob", "3"), "", `201 {"course":"math","student":"bob"}`},
		{put("math", "cid", "4"), "", `409 {"status":409,"title":"no seat is free"}`},
		{put("math", "cid", ""), "", `400 {"status":400,"title":"a student in the path and a Request-Id in the header are wanted"}`},
		{put("math", `"`, "5"), "", `400 {"status":400,"title":"a student in the path and a Request-Id in the header are wanted"}`},
		{put("a/b", "cid", "5"), "", `400 {"status":400,"title":"this is no name of a course"}`},
		{map[string]string{"method": "GET", "course": "math"}, "", `200 {"course":"math","free":0}`},
	} {
		if diff := cmp.Diff(tt.want, ask(t, host, tt.meta, tt.content)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", tt.meta, diff)
		}
	}
	want := []string{"free/math", "request/1", "request/3", "student/math/ann", "student/math/bob"}
	if diff := cmp.Diff(want, bucket.Keys()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
